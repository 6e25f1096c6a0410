"""Our kernels with two releases of Triton, on one GPU: the time of one divided by the other's.

    python benchmarks/triton_versions.py FOLDER [--rounds 3] [--rows REGEX] [--keep FILE]

FOLDER holds another `triton`, unpacked. Each round is a process with this environment's Triton and
one with that of the folder, one after the other, so that both meet the card as it is. A row is one
of the bench's, forward or backward; 1.00 is level, more is slower with the folder's. Last comes the
host time of a cached call, in microseconds and in Python calls.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import time
from functools import partial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", help="what holds the other triton")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="", help="a regular expression")
    parser.add_argument("--keep", help="a file for all times, as JSON")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(measured(chosen.rows)))
        return
    others = os.environ.get("PYTHONPATH", "")
    found: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    for _ in range(chosen.rounds):
        for which, path in (("this", others), ("other", f"{chosen.folder}:{others}")):
            command = [sys.executable, __file__, "--measure", "--rows", chosen.rows]
            answer = subprocess.run(
                command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
            )
            found[which].append(json.loads(answer.stdout.splitlines()[-1]))
    if chosen.keep:
        with open(chosen.keep, "w") as file:
            json.dump(found, file)
    print(
        f"{'':38} {found['this'][0].pop('Triton'):>9} {found['other'][0].pop('Triton'):>9}  ratio"
    )
    for row in found["this"][0]:
        this, other = (statistics.median(one[row] for one in found[w]) for w in found)
        print(f"{row:38} {this:9.3f} {other:9.3f} {other / this:6.2f}")


def measured(rows: str) -> dict[str, float | str]:
    """Milliseconds of each row with the Triton of this process, and what a cached call costs."""
    import torch
    import triton

    import maskalg as ma
    from maskalg.bench.cases import backward_of, cases
    from maskalg.bench.contenders import inputs_of
    from maskalg.bench.measure import interleaved

    found: dict[str, float | str] = {"Triton": triton.__version__}
    for name, case in cases("cuda").items():
        if not re.search(rows, name):
            continue
        leaves = inputs_of(case, torch.bfloat16, gradients=True)
        run = partial(ma.attention, *leaves, case.expression)
        with torch.no_grad():
            times = interleaved({"": run}, 5)
        found[f"{name}, forward"] = statistics.median(times[""])
        times = interleaved({"": backward_of(run, leaves)}, 5)
        found[f"{name}, backward"] = statistics.median(times[""])
        del leaves, run
    q, k, v = (torch.randn(1, 8, 512, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    call = partial(ma.attention, q, k, v, ma.causal)
    for _ in range(3):
        call()
    gc.disable()
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(25):
            call()
        times.append((time.perf_counter() - started) / 25 * 1e6)
    found["host time of a cached call, us"] = statistics.median(times)
    found["Python calls of it"] = python_calls(call)
    return found


def python_calls(call: partial) -> int:
    """Calls of Python functions within a call."""
    count = 0

    def hear(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(hear)
    call()
    sys.setprofile(None)
    return count


if __name__ == "__main__":
    main()
