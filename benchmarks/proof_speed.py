"""Time of proofs, of building expressions and of block metadata, beside FlexAttention's.

    python benchmarks/proof_speed.py [--rounds 5] [--flex 8192,32768] [--only document]

Cold: each mask of the catalogue is proved in a process of its own, forked from one that has
imported SymPy and proved nothing; the median over rounds, then over masks. Three masks are also
proved in a new interpreter each, where the import of SymPy is timed beside. Cached: microseconds
on the host, the best of several repetitions. Metadata: runs, and labels of all blocks, beside
`create_block_mask` eager and compiled; eager at 32k takes some twenty seconds a mask, and 1 GiB for
every matrix it makes.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import maskalg as ma
from maskalg import alibi, causal, chunked, document, prefix, sliding
from maskalg.attention import checked_call
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.proof.proof import prove_structure
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tiling import Tiling

BLOCK = 128
LONG = 1 << 20

# What a new interpreter does; printed in milliseconds.
NEW_INTERPRETER = """
import time, torch
from maskalg import *
from maskalg.engine.normal_form import bound
structure = bound({mask}).structure
start = time.perf_counter()
import maskalg.proof.elimination
imported = time.perf_counter()
from maskalg.proof.proof import prove_structure
prove_structure(structure)
print(1000 * (imported - start), 1000 * (time.perf_counter() - imported))
"""


def in_new_process(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of `work` in a forked process: by the clock, and of the processor."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        start, busy = time.perf_counter(), time.process_time()
        work()
        found = time.perf_counter() - start, time.process_time() - busy
        os.write(write, struct.pack("dd", *(1000 * seconds for seconds in found)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return struct.unpack("dd", answer)


def cold(rounds: int) -> None:
    # SymPy, and every module of a proof: their import is timed elsewhere.
    import maskalg.proof.digits.prove
    import maskalg.proof.section  # noqa: F401
    from maskalg.testing.catalogue import CATALOGUE

    # Or the collector would walk what the parent imported, 200 ms in some of the children.
    gc.collect()
    gc.freeze()
    times = {}
    for name, case in CATALOGUE.items():
        structure = bound(case.mask).structure
        work = lambda s=structure: prove_structure(s)  # noqa: E731
        found = [in_new_process(work) for _ in range(rounds)]
        times[name] = [statistics.median(column) for column in zip(*found, strict=True)]
    for name, (clock, busy) in sorted(times.items(), key=lambda item: -item[1][0]):
        print(f"{clock:9.1f} ms, processor {busy:7.1f} ms  {name}")
    clocks, busies = zip(*times.values(), strict=True)
    print(
        f"cold proof, SymPy imported, {len(times)} masks: median {statistics.median(clocks):.1f} ms"
        f", worst {max(clocks):.1f} ms (processor: {statistics.median(busies):.1f}, "
        f"{max(busies):.1f})"
    )


def with_import(rounds: int) -> None:
    masks = ("causal", "causal & (sliding(256) | prefix(4))", "causal & document(torch.arange(9))")
    for mask in masks:
        found = []
        for _ in range(rounds):
            code = NEW_INTERPRETER.format(mask=mask)
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            found.append([float(part) for part in run.stdout.split()])
        imported, proved = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{mask} in a new interpreter: import {imported:.0f} ms, then {proved:.1f} ms")


def best(work: Callable[[], object], count: int = 200, repeats: int = 60) -> float:
    """Microseconds of one call, in the best of many short turns: the machine has other work."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            work()
        found.append(1e6 * (time.perf_counter() - start) / count)
    return min(found)


def best_of_fresh(
    build: Callable[[], ma.Score], work: Callable[[ma.Score], object], count: int = 200
) -> float:
    """Microseconds of `work` on an expression that was just built, without building it."""
    found = []
    for _ in range(60):
        expressions = [build() for _ in range(count)]
        start = time.perf_counter()
        for expression in expressions:
            work(expression)
        found.append(1e6 * (time.perf_counter() - start) / count)
    return min(found)


def cached() -> None:
    ids, slopes = torch.arange(1024) // 100, torch.ones(8)
    q = torch.randn(1, 8, 1024, 64)

    def build() -> ma.Score:
        return causal & sliding(256) & document(ids) + alibi(slopes)

    expression = build()
    rows = {
        "build": best(build),
        "prove, the same expression": best(lambda: prove_structure(bound(expression).structure)),
        "prove, built anew": best_of_fresh(build, lambda e: prove_structure(bound(e).structure)),
        "checked call, the same expression": best(lambda: checked_call(q, q, q, expression)),
        "checked call, built anew": best_of_fresh(
            build,
            lambda e: prove_structure(checked_call(q, q, q, e).form.structure),
        ),
    }
    print("causal & sliding(256) & document(ids) + alibi(slopes), cached:")
    for name, found in rows.items():
        print(f"  {found:7.2f} us  {name}")


def middle(work: Callable[[], object], rounds: int) -> str:
    """Median milliseconds of one call, and the spread, after one call that is not counted."""
    found = []
    if rounds > 1:
        work()
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - start))
    if rounds == 1:
        return f"{found[0]:.0f} ms"
    return f"{statistics.median(found):.2f} ms [{min(found):.2f}-{max(found):.2f}]"


def metadata(rounds: int, flex_lengths: list[int], only: str) -> None:
    ids = (torch.arange(LONG) // 1000).int()
    masks = {
        "causal": (causal, lambda b, h, q, k: q >= k),
        "causal & sliding(4096)": (
            causal & sliding(4096),
            lambda b, h, q, k: (q >= k) & (q - k < 4096),
        ),
        "causal & (sliding(4096) | prefix(4))": (
            causal & (sliding(4096) | prefix(4)),
            lambda b, h, q, k: (q >= k) & ((q - k < 4096) | (k < 4)),
        ),
        "causal & chunked(8192)": (
            causal & chunked(8192),
            lambda b, h, q, k: (q >= k) & (q // 8192 == k // 8192),
        ),
        "causal & document(ids)": (
            causal & document(ids),
            lambda b, h, q, k: (q >= k) & (ids[q] == ids[k]),
        ),
    }
    print("| mask | length | runs | labels | flex eager | flex compiled | to compile |")
    print("|---|---|---|---|---|---|---|")
    for name, (mask, mask_mod) in masks.items():
        if not re.search(only, name):
            continue
        mask.prove()
        form = bound(mask)
        for length in (*flex_lengths, LONG):
            tiling = Tiling(form, Extents(length, length, 1, 1), (BLOCK, BLOCK))
            table = middle(lambda t=tiling: rung_of(t.form.structure).runs(t), rounds)
            cells = ["–"] * 4
            if length in flex_lengths:
                labels = middle(lambda m=mask, n=length: m.blocks(n, block=BLOCK), rounds)
                cells = [labels, *flex_times(mask_mod, length, rounds)]
            print(f"| {name} | {length} | {table} | {' | '.join(cells)} |", flush=True)


def flex_times(mask_mod: Callable, length: int, rounds: int) -> list[str]:
    """`create_block_mask` eager and compiled, and its first call with the compilation."""
    from torch.nn.attention.flex_attention import create_block_mask

    def make(compiled: bool) -> object:
        return create_block_mask(
            mask_mod, None, None, length, length, device="cpu", BLOCK_SIZE=BLOCK, _compile=compiled
        )

    eager = middle(lambda: make(False), 1 if length > 8192 else rounds)
    torch._dynamo.reset()
    first = middle(lambda: make(True), 1)
    return [eager, middle(lambda: make(True), rounds), first]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flex", default="8192", help="lengths of create_block_mask, or none")
    parser.add_argument(
        "--only", default="", help="metadata of masks whose name has this, a regular expression"
    )
    parser.add_argument("--metadata-only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, 1 thread")
    if not options.metadata_only:
        with_import(options.rounds)
        cold(options.rounds)
        cached()
    lengths = [int(part) for part in options.flex.split(",") if part.isdigit()]
    metadata(options.rounds, lengths, options.only)


if __name__ == "__main__":
    main()
