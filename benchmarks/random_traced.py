"""Hunts for functions that a trace does not mean, and for wrong labels of their masks.

    python benchmarks/random_traced.py --count 2000 --seed 0

Each function is random: arithmetic, comparisons and tables by position, by head and by batch entry,
some of 8 bits. It is called on all positions by torch, and traced by `maskalg.mask`; both must keep
the same pairs, and every label of the mask must be exact. The first that fails is printed, and the
exit status is 1. Functions that `mask` refuses are counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from typing import Any

import torch

import maskalg as ma
from maskalg.errors import MaskTypeError
from maskalg.testing import assert_labels_exact

BATCH, HEADS = 2, 3
LONGEST = 200
LEAVES = (
    *("q", "k", "q", "k", "h", "b", "ids[q]", "ids[k]", "ids[k]"),
    *("of_batch[b, k]", "of_head[h]", "small[k]", "small[q]"),
)


class Text:
    """Writes a random function."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def of(self) -> str:
        """The text of a function of `b`, `h`, `q` and `k`."""
        return f"lambda b, h, q, k: {self.truth(self.draw.randint(1, 3))}"

    def truth(self, depth: int) -> str:
        """A condition."""
        if depth == 0:
            left, sign = self.number(1), self.draw.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"({left} {sign} {self.number(1)})"
        kind = self.draw.randrange(6)
        if kind < 2:
            return f"({self.truth(depth - 1)} & {self.truth(depth - 1)})"
        if kind < 4:
            return f"({self.truth(depth - 1)} | {self.truth(depth - 1)})"
        if kind == 4:
            return f"(~{self.truth(depth - 1)})"
        parts = ", ".join(self.truth(depth - 1) for _ in range(3))
        return f"torch.where({parts})"

    def number(self, depth: int) -> str:
        """An integer."""
        if depth == 0 or self.draw.random() < 0.25:
            return self.draw.choice((*LEAVES, str(self.draw.randint(-3, 90))))
        x, kind = self.number(depth - 1), self.draw.randrange(8)
        if kind < 4:
            return f"({x} {'+-*-'[kind]} {self.number(depth - 1)})"
        if kind == 4:
            return f"({x} // {self.draw.choice([2, 3, 16, 64, -3])})"
        if kind == 5:
            return f"({x} % {self.draw.choice([2, 5, 16, 70])})"
        if kind == 6:
            return f"({x}).clamp({self.draw.randint(-5, 20)}, {self.draw.randint(21, 99)})"
        return f"abs({x})"


def tables(draw: random.Random) -> dict[str, Any]:
    """What a function may read."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))

    def numbers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    ids = numbers(0, 6, LONGEST)
    return {
        "torch": torch,
        "ids": ids.sort().values if draw.random() < 0.5 else ids,
        "of_batch": numbers(-4, LONGEST, BATCH, LONGEST),
        "of_head": numbers(0, 64, HEADS),
        "small": numbers(0, 256, LONGEST).to(torch.uint8),
    }


def checked(text: str, captured: dict[str, Any], draw: random.Random) -> bool:
    """Whether `mask` takes a function; raises if the mask is another than the function says."""
    function = eval(text, captured)
    lengths = draw.randint(1, LONGEST), draw.randint(1, LONGEST)
    axes = torch.meshgrid(*map(torch.arange, (BATCH, HEADS, *lengths)), indexing="ij")
    try:
        wanted = torch.as_tensor(function(*axes)).expand(BATCH, HEADS, *lengths)
    except (TypeError, RuntimeError, AttributeError):
        return False  # torch does not compute it
    try:
        mask = ma.mask(function)
    except MaskTypeError:
        return False
    found = mask.to_dense(*lengths, batch=BATCH, heads=HEADS)
    assert torch.equal(found.expand_as(wanted), wanted), f"another mask at {lengths}: {mask}"
    block = draw.choice([8, 16, 64, 128])
    assert_labels_exact(mask, *lengths, block, batch=BATCH, heads=HEADS)
    return True


def main() -> int:
    """Run the search the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="functions to check")
    parser.add_argument("--seed", type=int, default=0, help="where the search starts")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    began = time.perf_counter()
    for number in range(options.count):
        draw = random.Random(f"{options.seed} {number}")
        text, captured = Text(draw).of(), tables(draw)
        try:
            seen["traced" if checked(text, captured, draw) else "refused"] += 1
        except Exception as failure:
            print(f"{number}: {text}\n{type(failure).__name__}: {failure}", file=sys.stderr)
            return 1
    print(f"seed {options.seed}: {dict(seen)}, {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
