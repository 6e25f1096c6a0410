"""`maskalg verify`: the kernels of an expression, proved to compute its mask."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from .options import add_expression, plain_console, positive

HELP: Final = "prove that the kernels compute the mask, for every index"
DESCRIPTION: Final = (
    "Read the text of the kernels back and prove it equal to the formula, for all "
    "positions, numbers and entries. Exit status 1 where a claim is wrong."
)
_TARGETS: Final = {"nvidia": "ptx", "gpu": "triton", "cpu": "cpu", "torch": "torch", "page": "page"}
# Names of GPUs, by whose kernels they run.
_GPUS: Final = {"nvidia": r"sm_\d{2,3}[af]?", "gpu": r"gfx[0-9a-f]{3,4}"}


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add = parser.add_argument
    add("--target", type=_target, metavar="TARGET", help="nvidia (or a GPU such as sm_90), "
        "gpu (others, or gfx942), cpu, torch (functions for other libraries) or page (that of "
        "explore); default: all")  # fmt: skip
    add("--len", type=positive, metavar="N", help="also check the tiles of a call of N queries "
        "and keys, pair by pair")  # fmt: skip
    add("--seconds", type=positive, default=10, help="most seconds for one claim (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print each claim; the exit status is 1 if one is wrong."""
    from ..parsing import read
    from ..verifier.report import TARGETS, verify

    expression = read(options.expression)
    targets: Any = TARGETS
    if options.target is not None:
        targets = (options.target,)
    found = verify(expression, targets=targets, length=options.len, seconds=options.seconds)
    console = plain_console()
    console.print(str(found))
    return 1 if found.wrong else 0


def _target(text: str) -> str:
    vendors = [vendor for vendor, pattern in _GPUS.items() if re.fullmatch(pattern, text)]
    found = _TARGETS.get(vendors[0] if vendors else text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"expected {', '.join(_TARGETS)} or a GPU such as sm_90 or gfx942, got {text!r}"
        )
    return found
