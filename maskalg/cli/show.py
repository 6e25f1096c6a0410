"""`maskalg show`: a picture of a mask's blocks, and the share of work saved."""

from __future__ import annotations

import argparse
from typing import Final

from .options import (
    LENGTH_SHOWN,
    add_expression,
    add_lengths,
    length_shown,
    mask_of,
    natural,
    picture_width,
    plain_console,
    positive,
)

HELP: Final = "a picture of the empty, partial and full blocks, and what they save"
DESCRIPTION: Final = "Print a picture of a mask's blocks, its formula and what they save."


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add_lengths(parser, str(LENGTH_SHOWN))
    add = parser.add_argument
    add("--block", type=positive, default=128, help="side of the counted blocks (%(default)s)")
    add("--width", type=positive, help="columns of the picture (default: what fits)")
    add("--entry", type=natural, default=0, help="batch entry to show (%(default)s)")
    add("--head", type=natural, default=0, help="head to show (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the picture; returns the exit status."""
    from ..parsing import read
    from ..views.inspect.terminal import show

    mask = mask_of(read(options.expression))
    console = plain_console()
    show(
        mask,
        length_shown(mask, options),
        options.kv_len,
        width=picture_width(options.width, console, 2),
        block=options.block,
        entry=options.entry,
        head=options.head,
        console=console,
    )
    return 0
