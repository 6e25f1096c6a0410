"""`maskalg compare`: whether two masks keep the same pairs, and a pair where they do not."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from ..formula.expression import Expression
from ..values.algebra import Score
from .options import add_expression, add_lengths, mask_of, natural, plain_console

if TYPE_CHECKING:
    from ..questions.search import Place

HELP: Final = "whether two masks are equivalent, or one implies the other, or where they differ"
DESCRIPTION: Final = (
    "Compare what two masks keep. Exit status 0: equivalent; 1: different, or "
    "not known; 2: an error."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser, "a")
    add_expression(parser, "b")
    add_lengths(parser, "every position")
    add = parser.add_argument
    add("--batch", type=natural, help="number of batch entries, if no tensor tells it")
    add("--heads", type=natural, help="number of heads, if no tensor tells it")


def run(options: argparse.Namespace) -> int:
    """Print how the masks relate; returns the exit status."""
    from ..engine.extents import Lengths
    from ..parsing import read
    from ..questions.compare import compare
    from ..views.inspect.difference import LENGTHS_SEEN_WHOLE, close_up, overview, show_difference

    given = read(options.a), read(options.b)
    a, b = (mask_of(each).to("cpu") for each in given)
    lengths = Lengths(options.q_len, options.kv_len, options.batch, options.heads)
    console = plain_console()
    found = compare(a, b, lengths)
    options.status = 0 if found.equivalent else 1
    console.print(f"A  {a}\nB  {b}")
    console.print(f"\n{found}, {_where(options)}", style="bold")
    if any(isinstance(each, Score) for each in given):
        console.print("Biases are not compared.")
    if options.q_len is None and None in (found.only_a.empty, found.only_b.empty):
        console.print("--len N asks about N positions alone, which may be decided.")
    for side, one, other in ((found.only_a, "A", "B"), (found.only_b, "B", "A")):
        if side.place is not None:
            text = _place_text(side.mask, side.place)
            console.print(f"{one} keeps {text}, {other} does not")
    place = found.only_a.place or found.only_b.place
    if place is not None:
        if options.q_len in LENGTHS_SEEN_WHOLE and not (place.batch or place.head):
            show_difference(overview(a, b, found, options.q_len, options.kv_len), console)
        show_difference(close_up(a, b, place, lengths), console)
    return int(options.status)


def _where(options: argparse.Namespace) -> str:
    counts = [f"{options.batch} batch entries"] if options.batch is not None else []
    counts += [f"{options.heads} heads"] if options.heads is not None else []
    among = f" of {' and '.join(counts)}" if counts else ""
    if options.q_len is None:
        return f"over all positions{among}"
    keys = options.q_len if options.kv_len is None else options.kv_len
    return f"over {options.q_len:,} queries and {keys:,} keys{among}"


def _place_text(mask: Expression, place: Place) -> str:
    text = f"q_idx {place.q_idx}, kv_idx {place.kv_idx}"
    for name, value in (("batch", place.batch), ("head", place.head)):
        if name in mask.mask_node.indices():
            text += f", {name} {value}"
    return text
