"""`maskalg show`: a picture of a mask's blocks, and what they save."""

from __future__ import annotations

import argparse
from typing import Any, Final

from .arguments import (
    EXPRESSIONS,
    LENGTH_SHOWN,
    add_expression,
    add_lengths,
    length_shown,
    mask_of,
    natural,
    positive,
)

_PIPED_WIDTH: Final = 64
_MOST_WIDTH: Final = 96


def declare(commands: Any) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "show",
        help="a picture of the empty, partial and full blocks, and what they save",
        description="Print a picture of a mask's blocks, its formula and what they save.",
        epilog=EXPRESSIONS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_expression(parser)
    add_lengths(parser, str(LENGTH_SHOWN))
    add = parser.add_argument
    add("--block", type=positive, default=128, help="side of the counted blocks (%(default)s)")
    add("--width", type=positive, help="columns of the picture (default: what fits)")
    add("--entry", type=natural, default=0, help="batch entry to show (%(default)s)")
    add("--head", type=natural, default=0, help="head to show (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the picture; returns the exit status."""
    from rich.console import Console

    from ..parsing import read
    from ..views.inspect.terminal import show

    mask = mask_of(read(options.expression))
    console = Console(highlight=False, markup=False, emoji=False)
    fitting = min(_MOST_WIDTH, console.width - 2) if console.is_terminal else _PIPED_WIDTH
    show(
        mask,
        length_shown(mask, options),
        options.kv_len,
        width=options.width or max(fitting, 8),
        block=options.block,
        entry=options.entry,
        head=options.head,
        console=console,
    )
    return 0
