"""Hunts for wrong labels, crashes and slow proofs in random compositions of masks.

    python benchmarks/random_soundness.py --count 5000 --depth 4 --seed 0

Each composition is compared with the independent numpy oracle, its labels with brute force, its
closed forms key by key. The search is the same for the same seed. The
first failure is shrunk to a minimal example and printed; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter

from hypothesis import HealthCheck, given, seed, settings

from maskalg.proof.proof import proofs_made
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact, assert_same_mask
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.strategies import Shape, masks, shapes


def check(case: Case, shape: Shape) -> None:
    """Everything that must hold for one composition at one shape."""
    mask, lengths = case.mask, shape.lengths
    wanted = case.dense(*lengths)
    assert_same_mask(mask, wanted, *lengths, batch=BATCH, heads=HEADS)
    assert_labels_exact(mask, *lengths, shape.block, batch=BATCH, heads=HEADS)
    assert_closed_forms_sound(mask, *lengths, shape.block_q, batch=BATCH, heads=HEADS)


def search(count: int, depth: int, start: int) -> None:
    """Check `count` compositions and print what they were like."""
    seen: Counter[str] = Counter()
    slowest: list[tuple[float, str]] = []

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(masks(depth), shapes())
    def examine(case: Case, shape: Shape) -> None:
        began = time.perf_counter()
        check(case, shape)
        proof = case.mask.prove()
        seen["compositions"] += 1
        seen["proved exactly"] += proof.exact
        seen[proof.rung] += 1
        slowest.append((time.perf_counter() - began, repr(case.mask)))
        slowest.sort(reverse=True)
        del slowest[3:]

    began = time.perf_counter()
    examine()
    seconds = time.perf_counter() - began
    print(f"depth {depth}, seed {start}: {dict(seen)}, {proofs_made()} structures, {seconds:.0f} s")
    for duration, mask in slowest:
        print(f"  {duration:6.2f} s  {mask[:160]}")


def main() -> int:
    """Run the search the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="compositions to check")
    parser.add_argument("--depth", type=int, default=4, help="how deep operators nest")
    parser.add_argument("--seed", type=int, default=0, help="where the search starts")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=Warning, module="hypothesis")
    try:
        search(options.count, options.depth, options.seed)
    except Exception as failure:
        print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
        for note in getattr(failure, "__notes__", []):
            print(note, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
