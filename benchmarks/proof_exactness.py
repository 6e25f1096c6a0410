"""How many of the empty and full blocks are proved, by which rung, and is any answer wrong.

    python benchmarks/proof_exactness.py                      # the masks of the field
    python benchmarks/proof_exactness.py --random 500 --depth 3 --seed 0

A block counts as proved when its label is known without evaluating the mask at its elements; a
tensor over pairs (`dense`) is read once for the summary of its blocks. Every label is compared with
dense evaluation; wrong ones are counted, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field

from exactness_masks import masks as field_masks
from hypothesis import HealthCheck, given, seed, settings

from maskalg import Mask
from maskalg.engine.evaluate import device_of
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import Bound, bound, transposed
from maskalg.proof.proof import prove_structure
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tile_runs import EMPTY, FULL
from maskalg.schedule.tiling import Tiling
from maskalg.testing import oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes

SHAPES = (
    Shape(1000, 1000, 128, 128),
    Shape(1000, 1000, 16, 16),
    Shape(1000, 777, 64, 48),
    Shape(333, 1024, 32, 256),
    Shape(63, 63, 16, 32),
    Shape(1, 1000, 128, 128),
)
SMALL_SHAPES = (
    Shape(40, 40, 4, 4),
    Shape(37, 37, 5, 3),
    Shape(23, 40, 8, 2),
    Shape(1, 33, 8, 8),
)


@dataclass
class Tally:
    """Blocks that are truly empty or full, those proved to be, and labels that are wrong."""

    true: Counter[int] = field(default_factory=Counter)
    proved: Counter[int] = field(default_factory=Counter)
    evaluated: int = 0
    wrong: int = 0

    def add(self, form: Bound, shape: Shape, batch: int, heads: int) -> None:
        """Count the blocks of one mask at one shape."""
        extents = resolve(form, Lengths(*shape.lengths, batch, heads))
        labels, places = rung_of(form.structure).labels(Tiling(form, extents, shape.block))
        wanted = oracle.labels(_dense(form, shape, batch, heads), *shape.block)
        known = ~(labels == labels)
        known[places.unbind(dim=1)] = True
        found, undecided = labels.cpu().numpy(), known.cpu().numpy()
        self.wrong += int(((found != wanted) & ~undecided).sum())
        self.evaluated += len(places)
        for label in (EMPTY, FULL):
            self.true[label] += int((wanted == label).sum())
            self.proved[label] += int(((wanted == label) & ~undecided).sum())

    def share(self, label: int) -> float:
        """Percentage of the blocks with this label that are proved."""
        return 100 * self.proved[label] / max(self.true[label], 1) if self.true[label] else 100.0


def _dense(form: Bound, shape: Shape, batch: int, heads: int):  # type: ignore[no-untyped-def]
    from maskalg.engine.evaluate import Environment, evaluate, grid
    from maskalg.engine.extents import dependence

    extents = resolve(form, Lengths(*shape.lengths, batch, heads))
    sizes = dependence(form.structure.mask, form, extents)
    columns, device = (0, extents.kv_len), device_of(form)
    at = grid(sizes.batch, sizes.heads, (0, extents.q_len), columns, device)
    kept = evaluate(form.structure.mask, Environment(at, form.values))
    return kept.expand(sizes.batch, sizes.heads, *shape.lengths).cpu().numpy()


def both_ways(mask: Mask) -> tuple[Bound, Bound]:
    """The mask, and the mask with queries and keys exchanged."""
    form = bound(mask)
    return form, Bound(transposed(form.structure), form.values)


def of_the_field() -> int:
    """Print a line for each mask of the field and of the small catalogue; how many are wrong."""
    named = [(name, mask, SHAPES, 1, 2) for name, mask in field_masks().items()]
    named += [(name, case.mask, SMALL_SHAPES, BATCH, HEADS) for name, case in CATALOGUE.items()]
    total = Tally()
    print(f"{'mask':38} {'EMPTY %':>8} {'FULL %':>8} {'wrong':>6} {'cold ms':>8}  rung")
    for name, mask, shapes_, batch, heads in named:
        tally = Tally()
        for form in both_ways(mask):
            for shape in shapes_:
                tally.add(form, shape, batch, heads)
        proof = prove_structure(bound(mask).structure)
        print(
            f"{name:38} {tally.share(EMPTY):8.2f} {tally.share(FULL):8.2f} {tally.wrong:6} "
            f"{proof.milliseconds:8.1f}  {proof.rung}"
        )
        if "dense" not in name:
            total.true += tally.true
            total.proved += tally.proved
        total.wrong += tally.wrong
    print(
        f"{'all but dense':38} {total.share(EMPTY):8.2f} {total.share(FULL):8.2f} {total.wrong:6}"
    )
    return total.wrong


def of_random(count: int, depth: int, start: int) -> int:
    """Print what is proved of random compositions; how many labels are wrong."""
    whole, without, rungs = Tally(), Tally(), Counter[str]()
    slowest: list[float] = []

    @seed(start)
    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(masks(depth), shapes())
    def examine(case: Case, shape: Shape) -> None:
        form = bound(case.mask)
        proof = prove_structure(form.structure)
        rungs[proof.rung] += 1
        slowest.append(proof.milliseconds)
        whole.add(form, shape, BATCH, HEADS)
        if "dense" not in proof.formula:
            without.add(form, shape, BATCH, HEADS)

    began = time.perf_counter()
    examine()
    print(f"depth {depth}, seed {start}: {len(slowest)} compositions, wrong {whole.wrong}")
    for name, tally in (("all", whole), ("without dense tensors", without)):
        total = tally.true[EMPTY] + tally.true[FULL]
        share = 100 * (tally.proved[EMPTY] + tally.proved[FULL]) / max(total, 1)
        print(
            f"  {name:22} EMPTY {tally.share(EMPTY):6.2f} %  FULL {tally.share(FULL):6.2f} %  "
            f"both {share:6.2f} % of {total} blocks"
        )
    print(f"  rungs {dict(rungs)}, slowest proof {max(slowest):.0f} ms")
    print(f"  {time.perf_counter() - began:.0f} s")
    return whole.wrong


def main() -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=0, help="random compositions to look at")
    parser.add_argument("--depth", type=int, default=3, help="how deep operators nest")
    parser.add_argument("--seed", type=int, default=0, help="where the search starts")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=Warning, module="hypothesis")
    if options.random:
        return int(of_random(options.random, options.depth, options.seed) > 0)
    return int(of_the_field() > 0)


if __name__ == "__main__":
    sys.exit(main())
