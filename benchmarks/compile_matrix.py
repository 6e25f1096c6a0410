"""Compiles kernels of random compositions, or of the catalogue, for GPUs that are not here.

    python -m benchmarks.compile_matrix --count 2000 --jobs 8 --results cells.jsonl
    python -m benchmarks.compile_matrix --catalogue --jobs 64 --results catalogue.jsonl
    python -m benchmarks.compile_matrix --catalogue --count 500 --targets sm_80,sm_120

From the root of the repository. A cell is an expression, a head dimension, a dtype, a target and a
kernel, compiled with the tile that a launch there would choose. Cells are drawn from `--seed` and
their numbers, so the first 2,000 are a sample of all there are; `--catalogue` takes the masks and
biases of `maskalg.testing` one by one, in an order drawn from the seed, all of them without
`--count`. Each cell done is a line of `--results`, and one that the
file has of this Triton is not compiled again: start another file after a change of the package.
The summary counts, by target, failures, cells that need more shared memory than there is, and those
that keep more than `fitting.MOST_SPILLED` bytes of a thread's registers in memory; it lists
the worst. The exit status is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

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

Cell = tuple[str, int, str, str, str]
"""Expression, head dimension, dtype, target and pass."""


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


@lru_cache(maxsize=256)
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


def compiled(cell: Cell) -> list[dict[str, Any]]:
    """What each kernel of a cell came to: of few queries for each number of rows of a tile, of
    entries for each reading."""
    name, dim, dtype, target, wanted = cell
    results: list[dict[str, Any]] = []
    told = {"cell": cell, "triton": triton.__version__}
    try:
        kernels = kernels_offline(expression_of(name), target, dim, DTYPES[dtype])
    except errors.MaskalgError as problem:
        return [told | {"kernel": wanted, "failure": str(problem), "seconds": 0.0}]
    for kernel, compiler in kernels.items():
        if not kernel.startswith(wanted):
            continue
        result: dict[str, Any] = told | {"kernel": kernel}
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


def problem_of(result: dict[str, Any]) -> str | None:
    """What is wrong with a kernel, in the words of the summary."""
    if "failure" in result:
        return "fail"
    if result["kernel"] is None:
        return None
    if result["shared"] > result["shared_limit"]:
        return "over shared memory"
    return "spill" if (result["stack"] or 0) > MOST_SPILLED else None


def summary(results: list[dict[str, Any]], listed: int) -> int:
    """Print what came of all cells; how many kernels are wrong."""
    by_target: dict[str, Counter[str]] = {}
    for result in results:
        counts = by_target.setdefault(result["cell"][3], Counter())
        counts["kernels"] += result["kernel"] is not None
        counts[problem_of(result) or ""] += 1
    columns = ("kernels", "fail", "over shared memory", "spill")
    print(f"{'':8}" + "".join(f"{column:>20}" for column in columns))
    for target, counts in sorted(by_target.items()):
        print(f"{target:8}" + "".join(f"{counts[column]:>20}" for column in columns))
    wrong = [result for result in results if problem_of(result)]
    for result in sorted(wrong, key=lambda r: -(r.get("stack") or 1 << 20))[:listed]:
        found = result.get("failure") or f"{result['tier']}, {result['stack']} bytes spilled"
        print(f"  {problem_of(result)}: {', '.join(map(str, result['cell']))}: {found[:200]}")
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
    add("--jobs", type=int, default=os.cpu_count(), help="cells at a time (%(default)s)")
    add("--results", type=Path, help="a file of JSON lines: cells that it has are not compiled")
    add("--list", type=int, default=20, help="how many of the worst are listed (%(default)s)")
    options = parser.parse_args()
    drawn = catalogue_cells if options.catalogue else random_cells
    count = options.count or (sys.maxsize if options.catalogue else 2000)
    passes, dtypes = options.passes.split(","), options.dtypes.split(",")
    cells: list[Cell] = []
    for cell in drawn(options.seed, options.targets.split(",")):
        if len(cells) == count:
            break
        if cell[4] in passes and cell[2] in dtypes and served(cell):
            cells.append(cell)
    known: dict[Cell, list[dict[str, Any]]] = {}
    if options.results and options.results.exists():
        for line in options.results.read_text().splitlines():
            result = json.loads(line)
            if result["triton"] == triton.__version__:
                known.setdefault(tuple(result["cell"]), []).append(result)
    missing = [cell for cell in cells if cell not in known]
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(compiled, cell): cell for cell in missing}
        for future in as_completed(futures):
            known[futures[future]] = future.result()
            if options.results:
                with options.results.open("a") as file:
                    file.writelines(f"{json.dumps(each)}\n" for each in future.result())
    seconds = time.perf_counter() - began
    print(f"Triton {triton.__version__}, {len(cells)} cells, {len(missing)} now, {seconds:.0f} s")
    return 1 if summary([each for cell in cells for each in known[cell]], options.list) else 0


if __name__ == "__main__":
    sys.exit(main())
