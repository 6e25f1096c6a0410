"""Time of the commands at a million tokens: whole processes, beside what `import torch` takes.

    python benchmarks/commands.py [--rounds 3] [--only document] [--commands show,prove]

Each command runs in a new process, as from a shell. "whole" is from its start to its exit, "torch"
is what `import torch` took in that process, and "ours" is the difference, with the start of Python
and everything else in it. Times are seconds by the clock, of the round in which "ours" was least:
what else the machine does lengthens all three.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

LENGTH: Final = 1 << 20
LIMIT: Final = 3.0

EXPRESSIONS: Final = (
    "causal",
    "causal & sliding(4096)",
    "causal & (sliding(256) | prefix(4))",
    "causal & chunked(8192)",
    "block_causal(4096)",
    "strided(1024)",
    "sliding(4096) & dilated(8)",
    f"causal & document(arange({LENGTH}) // 3000)",
    f"dilated(7) & document(arange({LENGTH}) // 3000)",
    f"causal & document(arange({LENGTH}) % 113)",
    f"per_document(causal & sliding(512), arange({LENGTH}) // 3000)",
    f"padding([{LENGTH - 12345}], queries=True)",
    f"causal & (sliding(512) | global_tokens(arange({LENGTH}) % 4096 == 0))",
    f"sliding(512) | spans(arange({LENGTH}) // 700)",
    f"block_diffusion({LENGTH // 2}, 64)",
    "neighborhood((1024, 1024), 13)",
    "neighborhood((64, 128, 128), (5, 9, 9))",
    "tiled_neighborhood((1024, 1024), (16, 16), 13)",
    "morton_neighborhood((1024, 1024), 13)",
    "spatial(4096, 1) | temporal(4096, 2)",
    "causal & sliding(4096) + alibi([0.5, 0.25])",
    "causal & ((q_idx - kv_idx) % 8 == 0)",
)

# The run of a command as its entry point makes it, with the time of `import torch` beside.
PROCESS: Final = """
import sys, time
started = time.perf_counter()
import torch
took = time.perf_counter() - started
from maskalg.cli import main
with open({stamp!r}, "w") as file:
    file.write(str(took))
sys.exit(main())
"""


def arguments(command: str, expression: str, folder: Path) -> list[str]:
    """What is typed for one expression."""
    long = ["--len", str(LENGTH)]
    return {
        "show": ["show", expression, *long],
        "prove": ["prove", expression],
        "compare": ["compare", f"({expression}) | sliding(3)", expression, *long],
        "explore": ["explore", expression, *long, "-o", str(folder / "mask.html")],
        "render": ["render", expression],
    }[command]


def timed(typed: list[str], folder: Path) -> tuple[float, float, int]:
    """Seconds of the whole process and of its `import torch`, and its exit status."""
    stamp = folder / "stamp"
    stamp.unlink(missing_ok=True)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROCESS.format(stamp=str(stamp)), *typed],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    whole = time.perf_counter() - started
    if not stamp.exists():
        raise SystemExit(f"maskalg {' '.join(typed)}: {done.stderr.strip()}")
    return whole, float(stamp.read_text()), done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of an expression")
    parser.add_argument("--commands", default="show,prove,compare,explore,render")
    options = parser.parse_args()
    print("| command | expression | whole | torch | ours | whole / torch |")
    print("|---|---|---|---|---|---|")
    worst = {"whole": 0.0, "ours": 0.0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for expression in EXPRESSIONS:
            if options.only not in expression:
                continue
            for command in options.commands.split(","):
                typed = arguments(command, _mask(expression, command), folder)
                runs = [timed(typed, folder) for _ in range(options.rounds)]
                whole, torch, _ = min(runs, key=lambda run: run[0] - run[1])
                worst = {
                    "whole": max(worst["whole"], whole),
                    "ours": max(worst["ours"], whole - torch),
                }
                print(
                    f"| {command} | `{expression}` | {whole:.2f} | {torch:.2f} "
                    f"| {whole - torch:.2f} | {whole / torch:.2f} |",
                    flush=True,
                )
    print(f"\nslowest: {worst['whole']:.2f} s whole, {worst['ours']:.2f} s ours")


def _mask(expression: str, command: str) -> str:
    """What `compare` is about: masks, which a bias cannot be joined to by `|`."""
    return expression.split(" + ")[0] if command == "compare" else expression


if __name__ == "__main__":
    main()
