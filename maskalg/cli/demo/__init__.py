"""`maskalg demo`: the main job on real text, next to the dense way."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ..options import natural, positive

HELP: Final = "attention over real text packed into one sequence, next to the dense way"
DESCRIPTION: Final = (
    "Pack text files into one sequence; prove, show and compute its attention; "
    "compare the result, the time and the memory with the dense way."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="text files or folders of them (default: sources of Python's standard library)",
    )
    add("--tokens", type=positive, default=16384, help="length of the sequence (%(default)s)")
    add("--window", type=positive, default=512, help="keys in the sliding window (%(default)s)")
    add("--heads", type=positive, default=8, help="attention heads (%(default)s)")
    add("--head-dim", type=positive, default=64, help="size of a head (%(default)s)")
    add("--seed", type=natural, default=0, help="seed of the random weights (%(default)s)")
    add("--device", help="cpu or cuda (default: cuda where there is one)")


def run(options: argparse.Namespace) -> int:
    """Run the demo; returns the exit status, 1 where the result differs from the dense one."""
    from .command import run

    return run(options)
