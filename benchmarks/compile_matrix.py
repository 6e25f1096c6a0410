"""Compiles kernels of random compositions, or of the catalogue, for GPUs that are not here.

    python -m benchmarks.compile_matrix --minutes 9 --results cells.jsonl
    PYTHONPATH=triton-3.9 python -m benchmarks.compile_matrix --minutes 9 --results cells.jsonl
    python -m benchmarks.compile_matrix --catalogue --results catalogue.jsonl
    python -m benchmarks.compile_matrix --catalogue --count 500 --targets sm_80,sm_120

From the root of the repository. A cell is an expression, a head dimension, a dtype, a target and a
kernel, compiled with the tile that a launch there would choose, by a process of its own. Cells are
drawn from `--seed` and their numbers, so the first 2,000 are a sample of all there are;
`--catalogue` takes the masks and biases of `maskalg.testing` one by one, in an order drawn from the
seed, all of them without `--count`. Each cell done is a line of `--results`, and one that the file
has of this Triton is not compiled again: the same command continues what `--minutes` or anything
else ended. Start another file after a change of the package. Several releases of Triton share a
file, and the summary has them side by side: by target the kernels, and how many fail, need more
shared memory than there is, or keep more than `fitting.MOST_SPILLED` bytes of a thread's registers
in memory. It lists the worst. The exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import product
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
import triton

from maskalg import errors
from maskalg.backends.triton.launching.fitting import MOST_SPILLED
from maskalg.backends.triton.offline import TARGETS, kernels_offline
from maskalg.engine.float8 import FLOAT8
from maskalg.formula.expression import Expression
from maskalg.testing.catalogue import BIASES, CATALOGUE
from maskalg.values.algebra import everything
from tests.cases.compositions import composition, lengths

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8": FLOAT8}
DIMS = (16, 32, 64, 128, 256)
OTHER_DIMS = (8, 24, 40, 72, 80, 96, 100, 112, 160, 192, 224)
PASSES = ("forward", "decode", "queries", "keys", "one pass", "entries")
LONGEST: Final = 240
"""Seconds after which a cell has failed."""

Cell = tuple[str, int, str, str, str]
"""Expression, head dimension, dtype, target and pass."""
Result = dict[str, Any]
"""Of one kernel."""


def random_cells(seed: int, targets: list[str]) -> Iterator[Cell]:
    """Cells without end; some name what is not served."""
    for number in range(sys.maxsize):
        draw = random.Random(f"{seed} {number}")
        dim = draw.choice(DIMS) if draw.random() < 0.7 else draw.choice(OTHER_DIMS)
        name = f"composition {draw.randrange(1 << 30)}"
        yield name, dim, draw.choice(list(DTYPES)), draw.choice(targets), draw.choice(PASSES)


def catalogue_cells(seed: int, targets: list[str]) -> Iterator[Cell]:
    """Every mask and bias of the catalogue, at every head dimension, once for each kernel."""
    names = [f"mask {name}" for name in CATALOGUE] + [f"bias {name}" for name in BIASES]
    cells = list(product(names, DIMS, ("bf16", "fp16", "fp32"), targets, PASSES))
    random.Random(seed).shuffle(cells)
    return iter(cells)


def expression_of(name: str) -> Expression:
    """The expression of a cell."""
    kind, _, which = name.partition(" ")
    if kind == "mask":
        return CATALOGUE[which].mask
    if kind == "bias":
        return everything + BIASES[which].build(*BIASES[which].tensors())
    return composition(int(which), *lengths(int(which)))


def served(cell: Cell) -> bool:
    """Whether any call launches this: float8 has no gradients, and is not read everywhere."""
    name, _, dtype, target, kernel = cell
    if dtype == "fp8" and (kernel not in PASSES[:2] or target in ("sm_80", "sm_86")):
        return False
    if kernel == "one pass" and (target != "sm_90" or dtype == "fp32"):
        return False
    return kernel != "entries" or not name.startswith("mask")


def compiled(cell: Cell) -> list[Result]:
    """What each kernel of a cell came to: of few queries for each number of rows of a tile, of
    entries for each reading."""
    name, dim, dtype, target, wanted = cell
    results: list[Result] = []
    told = {"cell": cell, "triton": triton.__version__}
    try:
        kernels = kernels_offline(expression_of(name), target, dim, DTYPES[dtype])
    except errors.MaskalgError as problem:
        return [told | {"kernel": wanted, "failure": str(problem), "seconds": 0.0}]
    for kernel, compiler in kernels.items():
        if not kernel.startswith(wanted):
            continue
        result: Result = told | {"kernel": kernel}
        began = time.perf_counter()
        try:
            report = compiler()
        except errors.MaskalgError as problem:
            result["failure"] = str(problem)
        else:
            wanted_of = ("tier", "registers", "spills", "stack", "shared", "shared_limit")
            result |= {field: getattr(report, field) for field in wanted_of}
        results.append(result | {"seconds": round(time.perf_counter() - began, 1)})
    return results or [told | {"kernel": None}]


def problem_of(result: Result) -> str | None:
    """What is wrong with a kernel, in the words of the summary."""
    if "failure" in result:
        return "fail"
    if result["kernel"] is None:
        return None
    if result["shared"] > result["shared_limit"]:
        return "over shared memory"
    return "spill" if (result["stack"] or 0) > MOST_SPILLED else None


def _send(writer: Connection, cell: Cell, folder: str) -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory(dir=folder) as kernels:
        triton.knobs.cache.dir = kernels
        results = compiled(cell)
    writer.send(results)


def in_processes(
    cells: Iterable[Cell], jobs: int, until: float
) -> Iterator[tuple[Cell, list[Result]]]:
    """The results of each cell that is compiled by `until`, of `time.monotonic`.

    A cell has a process, whose memory is given back, and which fails alone where a compiler ends it
    or never ends.
    """
    forked = multiprocessing.get_context("fork")
    running: dict[Any, tuple[Cell, multiprocessing.process.BaseProcess, float]] = {}
    waiting = iter(cells)
    with TemporaryDirectory() as folder:
        while (now := time.monotonic()) < until:
            while len(running) < jobs and (cell := next(waiting, None)) is not None:
                reader, writer = forked.Pipe(duplex=False)
                process = forked.Process(target=_send, args=(writer, cell, folder), daemon=True)
                process.start()
                writer.close()
                running[reader] = cell, process, now
            if not running:
                return
            ended = wait(list(running), timeout=1)
            for reader, (cell, process, began) in list(running.items()):
                if reader in ended:
                    try:
                        results = reader.recv()
                    except EOFError:
                        process.join()
                        results = _no_result(cell, f"exit status {process.exitcode}")
                elif now - began > LONGEST:
                    results = _no_result(cell, f"not compiled in {LONGEST} seconds")
                else:
                    continue
                process.kill()
                process.join()
                del running[reader]
                yield cell, results
        for _, process, _ in running.values():
            process.kill()
            process.join()


def _no_result(cell: Cell, why: str) -> list[Result]:
    return [{"cell": cell, "triton": triton.__version__, "kernel": cell[4], "failure": why}]


def summary(results: list[Result], listed: int) -> int:
    """Print what came of cells, releases of Triton side by side; how many kernels are wrong."""
    releases = sorted({result["triton"] for result in results})
    columns = ("kernels", "fail", "over shared memory", "spill", "most bytes spilled")
    print(f"| | {' | '.join(f'{release}: {c}' for release in releases for c in columns)} |")
    print("|---" * (1 + len(columns) * len(releases)) + "|")
    for target in (*sorted({result["cell"][3] for result in results}), "all"):
        row = [target]
        for release in releases:
            of = [r for r in results if r["triton"] == release and target in (r["cell"][3], "all")]
            problems = [problem_of(result) for result in of]
            row.append(str(sum(result["kernel"] is not None for result in of)))
            row += [str(problems.count(column)) for column in columns[1:4]]
            row.append(str(max((result.get("stack") or 0 for result in of), default=0)))
        print(f"| {' | '.join(row)} |")
    wrong = [result for result in results if problem_of(result)]
    for result in sorted(wrong, key=lambda r: -(r.get("stack") or 1 << 20))[:listed]:
        found = result.get("failure") or f"{result['tier']}, {result['stack']} bytes spilled"
        where = ", ".join(map(str, result["cell"]))
        print(f"  {problem_of(result)}: {result['triton']}, {where}: {found[:200]}")
    return len(wrong)


def main() -> int:
    """Compile the cells that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, help="cells to compile (2000, of the catalogue all)")
    add("--catalogue", action="store_true", help="masks and biases of the catalogue, one by one")
    add("--targets", default=",".join(TARGETS), help="GPUs, with commas (%(default)s)")
    add("--passes", default=",".join(PASSES), help="kernels, with commas (%(default)s)")
    add("--dtypes", default=",".join(DTYPES), help="of inputs, with commas (%(default)s)")
    add("--seed", type=int, default=0, help="from which cells are drawn (%(default)s)")
    cores = len(os.sched_getaffinity(0))
    add("--jobs", type=int, default=cores, help="cells at a time (a core each: %(default)s)")
    add("--minutes", type=float, default=float("inf"), help="after which to end (none)")
    add("--results", type=Path, help="a file of JSON lines: cells that it has are not compiled")
    add("--list", type=int, default=20, help="how many of the worst are listed (%(default)s)")
    options = parser.parse_args()
    began = time.monotonic()
    drawn = catalogue_cells if options.catalogue else random_cells
    count = options.count or (sys.maxsize if options.catalogue else 2000)
    passes, dtypes = options.passes.split(","), options.dtypes.split(",")
    cells: list[Cell] = []
    for cell in drawn(options.seed, options.targets.split(",")):
        if len(cells) == count:
            break
        if cell[4] in passes and cell[2] in dtypes and served(cell):
            cells.append(cell)
    known: dict[tuple[str, Cell], list[Result]] = {}
    if options.results and options.results.exists():
        for line in options.results.read_text().splitlines():
            for result in json.loads(line):
                known.setdefault((result["triton"], tuple(result["cell"])), []).append(result)
    here = triton.__version__
    missing = [cell for cell in cells if (here, cell) not in known]
    for cell, results in in_processes(missing, options.jobs, began + 60 * options.minutes):
        known[here, cell] = results
        if options.results:
            with options.results.open("a") as file:
                file.write(f"{json.dumps(results)}\n")
    releases = sorted({release for release, _ in known})
    for release in releases:
        done = sum((release, cell) in known for cell in cells)
        print(f"Triton {release}: {done:,} of {len(cells):,} cells")
    of_cells = [
        each for release in releases for cell in cells for each in known.get((release, cell), [])
    ]
    return 1 if summary(of_cells, options.list) else 0


if __name__ == "__main__":
    sys.exit(main())
