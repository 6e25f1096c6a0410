"""Time of the commands at a million tokens: whole processes, beside what `import torch` takes.

    python benchmarks/commands.py [--rounds 3] [--only document] [--commands show,prove]

Each command runs in a new process, as from a shell, after maskalg was compiled to bytecode, as pip
and `make demo` do it. "whole" is from its start to its exit, "torch" is what `import torch` took in
that process, and "ours" is the difference: the start of Python, our imports and SymPy's, the work,
and the exit. Seconds of the clock and, beside, of the processor; each three are of the round in
which "ours" was least. What else the machine does lengthens all of them.
"""

from __future__ import annotations

import argparse
import compileall
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import maskalg

LENGTH: Final = 1 << 20

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
    f"tree(arange({LENGTH}) - 1)",
    f"tree((arange({LENGTH}) - 1) // 2)",
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
clock, busy = time.perf_counter(), time.process_time()
import torch
clock, busy = time.perf_counter() - clock, time.process_time() - busy
from maskalg.cli import main
with open({stamp!r}, "w") as file:
    print(clock, busy, file=file)
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


@dataclass(frozen=True)
class Time:
    """Seconds of a whole process, and of its `import torch`."""

    whole: float
    torch: float

    @property
    def ours(self) -> float:
        return self.whole - self.torch

    def __str__(self) -> str:
        return f"{self.whole:.2f} | {self.torch:.2f} | {self.ours:.2f}"


def timed(typed: list[str], folder: Path) -> tuple[Time, Time]:
    """What one process takes, by the clock and of the processor."""
    stamp = folder / "stamp"
    stamp.unlink(missing_ok=True)
    before, started = _children(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROCESS.format(stamp=str(stamp)), *typed],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    whole, busy = time.perf_counter() - started, _children() - before
    if done.returncode not in (0, 1) or not stamp.exists():
        raise SystemExit(f"maskalg {' '.join(typed)}: {done.stderr.strip()}")
    clock, processor = map(float, stamp.read_text().split())
    return Time(whole, clock), Time(busy, processor)


def _children() -> float:
    """Seconds of the processor that the processes run so far took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of an expression")
    parser.add_argument("--commands", default="show,prove,compare,explore,render")
    options = parser.parse_args()
    compileall.compile_dir(Path(maskalg.__file__).parent, quiet=2)
    print("| command | expression | whole | torch | ours | processor: whole | torch | ours |")
    print("|---|---|---|---|---|---|---|---|")
    slowest: list[Time] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for expression in EXPRESSIONS:
            if options.only not in expression:
                continue
            for command in options.commands.split(","):
                typed = arguments(command, _mask(expression, command), folder)
                runs = [timed(typed, folder) for _ in range(options.rounds)]
                clock, busy = (
                    min(times, key=lambda t: t.ours) for times in zip(*runs, strict=True)
                )
                slowest.append(clock)
                print(f"| {command} | `{expression}` | {clock} | {busy} |", flush=True)
    whole, ours = max(t.whole for t in slowest), max(t.ours for t in slowest)
    print(f"\nslowest: {whole:.2f} s whole, {ours:.2f} s ours")


def _mask(expression: str, command: str) -> str:
    """What `compare` is about: masks, which a bias cannot be joined to by `|`."""
    return expression.split(" + ")[0] if command == "compare" else expression


if __name__ == "__main__":
    main()
