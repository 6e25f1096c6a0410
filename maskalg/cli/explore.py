"""`maskalg explore`: a page to look into a mask."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from .options import (
    LENGTH_SHOWN,
    add_expression,
    add_lengths,
    length_shown,
    positive,
)

HELP: Final = "an HTML page of a mask: pan, zoom, read why, move the parameters"
DESCRIPTION: Final = (
    "Write one HTML file, which needs no network, that shows a mask from the "
    "whole matrix to single elements, with the proof's reasons and its parameters to move."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add_lengths(parser, str(LENGTH_SHOWN))
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("mask.html"), help="file to write (%(default)s)")
    add("--batch", type=positive, help="number of batch entries (default: what tensors tell)")
    add("--heads", type=positive, help="number of heads (default: what tensors tell)")


def run(options: argparse.Namespace) -> int:
    """Write the page; returns the exit status."""
    from ..parsing import read
    from ..views.explore import explore

    expression = read(options.expression)
    written = explore(
        expression,
        length_shown(expression, options),
        options.kv_len,
        path=options.output,
        batch=options.batch,
        heads=options.heads,
    )
    print(f"{written}  {written.stat().st_size / 1024:,.0f} KiB")
    return 0
