"""How much of the rendered kernels is proved to compute its mask, over random compositions.

    python benchmarks/verify_compositions.py [--count 300] [--seed 0] [--depth 3] [--jobs N]
        [--json FILE]

Masks are drawn as the tests draw them (`maskalg.testing.strategies`): compositions nested up to
`--depth` times, whose entries and numbers are small or lie at the ends of 32 and of 64 bits. Each
structure counts once. Everything that is not proved is printed, with the mask. At the end: how many
masks are whole, by what the others fail, and the median and the most seconds of one, of one core.
`--json` keeps what is done, and goes on from there.
Needs z3 and hypothesis: `pip install "maskalg[verify]" hypothesis`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from functools import cache
from statistics import median
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from verify_jobs import results

import maskalg as ma
from maskalg import Mask
from maskalg.engine.normal_form import bound
from maskalg.testing.strategies import masks


@cache
def drawn(count: int, start: int, depth: int) -> list[Mask]:
    """So many masks of different structures, the same for the same seed."""
    found: dict[object, Mask] = {}
    while len(found) < count:

        @seed(start)
        @settings(
            max_examples=count,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(masks(depth))
        def collect(case: object) -> None:
            mask = case.mask  # type: ignore[attr-defined]
            found.setdefault(bound(mask).structure, mask)

        collect()
        start += 1_000_003
    return list(found.values())[:count]


def verified(
    number: int, count: int, start: int, depth: int, targets: str, seconds: float
) -> dict[str, Any]:
    """What the verifier finds of one of the drawn masks."""
    mask = drawn(count, start, depth)[number]
    began = time.perf_counter()
    try:
        found = ma.verify(mask, targets=targets.split(","), seconds=seconds)
    except ma.MaskValueError as problem:  # integers that no kernel computes
        return {"number": number, "refused": str(problem)}
    return {
        "number": number,
        "mask": str(mask),
        "seconds": time.perf_counter() - began,
        "whole": found.whole,
        "rest": [[c.outcome, c.kind, c.text, c.by] for c in found.claims if not c.holds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, default=300, help="of compositions (%(default)s)")
    add("--seed", type=int, default=0, help="of the drawing (%(default)s)")
    add("--depth", type=int, default=3, help="of compositions (%(default)s)")
    add("--targets", default="ptx,triton,cpu", help="kernels, with commas (%(default)s)")
    add("--seconds", type=float, default=3.0, help="of a claim at most (%(default)s)")
    add("--jobs", type=int, default=1, help="processes (%(default)s)")
    add("--json", default="", help="file of what is done, to go on from")
    options = parser.parse_args()
    of = (options.count, options.seed, options.depth, options.targets, options.seconds)
    times: list[float] = []
    whole = refused = 0
    reasons: Counter[tuple[str, str, str]] = Counter()
    jobs = [[number, *of] for number in range(options.count)]
    for one in results(verified, jobs, options.jobs, options.json):
        if "refused" in one:
            print(f"{one['number']}: refused, as by a call: {one['refused']}"[:300], flush=True)
            refused += 1
            continue
        times.append(one["seconds"])
        whole += one["whole"]
        if one["rest"]:
            print(f"{one['number']}: {one['mask'][:300]}, {times[-1]:.1f} s", flush=True)
        for outcome, kind, text, by in dict.fromkeys(map(tuple, one["rest"])):
            print(f"  {outcome}: {kind}, {text}: {by}"[:300], flush=True)
        reasons.update({(outcome, kind, by) for outcome, kind, _text, by in one["rest"]})
    print(
        f"{whole} of {len(times)} compositions whole, {refused} more refused; "
        f"{median(times):.2f} s in the median, {max(times):.1f} s at most"
    )
    for (outcome, kind, by), masks_of in reasons.most_common():
        print(f"{masks_of:6} masks  {outcome}, {kind}: {by}"[:200])


if __name__ == "__main__":
    main()
