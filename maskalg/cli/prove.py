"""`maskalg prove`: the proof of a mask as a person would write it."""

from __future__ import annotations

import argparse
import time
from typing import Final

from .options import add_expression, mask_of, plain_console

HELP: Final = "which blocks are empty and full for all values of the parameters, and why"
DESCRIPTION: Final = (
    "Print the proof of a mask: literals, what is eliminated, closed forms, "
    "rung, exactness and time."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add = parser.add_argument
    add("--latex", action="store_true", help="print the mask and its closed forms in LaTeX")
    add("--check", action="store_true", help="prove each claim once more by linear arithmetic; "
        "seconds for some masks")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the proof; returns the exit status."""
    from rich.text import Text
    from torch import Tensor

    from ..parsing import read
    from ..proof.printed import told

    mask = mask_of(read(options.expression))
    proof = mask.prove()
    console = plain_console()
    if options.latex:
        console.print(proof.to_latex())
    else:
        console.print(Text(str(mask), style="bold"))
        named = mask.parameters.items()
        values = [f"{name} = {value}" for name, value in named if not isinstance(value, Tensor)]
        if values:
            console.print(f"here {', '.join(values)}; the proof is for all values\n")
        for kind, text in told(proof):
            console.print(Text(text, style="bold cyan" if kind == "heading" else ""))
    if options.check:
        started = time.perf_counter()
        certificate = proof.check()
        console.print(Text("\nCertificate", style="bold cyan"))
        for line in str(certificate).splitlines():
            console.print(f"   {line}")
        console.print(f"   time      {1000 * (time.perf_counter() - started):.0f} ms")
    return 0
