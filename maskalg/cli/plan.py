"""`maskalg plan`: which rank computes which queries of a long sequence, and the keys it needs."""

from __future__ import annotations

import argparse
from typing import Final

from ..errors import MaskValueError
from .options import EXPRESSION_HELP, mask_of, natural, picture_width, plain_console, positive

HELP: Final = "share a long sequence among ranks: the same work for each, and the keys it needs"
DESCRIPTION: Final = (
    "Share a long sequence among ranks. Each gets equally many tokens and equal "
    "work, and only keys that its queries may keep travel to it."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("expression", nargs="+", metavar="EXPR", help=EXPRESSION_HELP)
    add("--len", dest="length", type=positive, required=True, help="tokens of the sequence")
    add("--ranks", type=positive, required=True, help="processes that share the sequence")
    add("--layers", default="", help='layers of each expression, such as "20,4" (default: 1 each)')
    add("--chunk", type=positive, help="tokens that stay together (default: 128, or what suits)")
    add("--batch", type=natural, help="number of batch entries, if no tensor tells it")
    add("--heads", type=natural, help="number of heads, if no tensor tells it")
    add("--width", type=positive, help="columns of the picture (default: what fits)")
    add("--json", action="store_true", help="print ranges of queries and keys, ends not included")


def run(options: argparse.Namespace) -> int:
    """Print the plan; returns the exit status."""
    import json

    from ..parallel import plan
    from ..parallel.picture import picture
    from ..parsing import read

    masks = [mask_of(read(text)) for text in options.expression]
    given = options.layers.split(",") if options.layers else ["1"] * len(masks)
    counts = [count.strip() for count in given]
    if len(counts) != len(masks) or not all(count.isdecimal() for count in counts):
        raise MaskValueError(
            f"--layers {options.layers}: must be numbers of layers, one for each expression and "
            f"commas between, such as --layers {','.join(['4'] * len(masks))}."
        )
    layers = list(zip(masks, map(int, counts), strict=True))
    sizes = {"batch": options.batch, "heads": options.heads}
    found = plan(layers, options.length, options.ranks, chunk=options.chunk, **sizes)
    if options.json:
        print(json.dumps(found.to_json()))
        return 0
    console = plain_console()
    ascii_only = console.options.ascii_only
    console.print(str(found).encode("ascii", "replace").decode() if ascii_only else str(found))
    console.print()
    width = picture_width(options.width, console, 5)
    for rank, line in enumerate(picture(found, width, ascii_only=ascii_only)):
        console.print(f"{rank:>4} {line}")
    held, needed, other = "#+." if ascii_only else "█▒·"
    console.print(f"     {held} queries of the rank   {needed} keys it needs   {other} neither")
    return 0
