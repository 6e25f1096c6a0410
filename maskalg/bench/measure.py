"""Times of contenders, interleaved: what ran just before moves a GPU by several per cent."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..algebra import Mask
from ..nodes import SCORE
from .cases import Case
from .contenders import backward_of, contenders, inputs_of


@dataclass(frozen=True)
class Row:
    """Milliseconds of each contender in each round, and what they computed.

    Attributes:
        name: of the case.
        times: by contender, ours first.
        flops: of the kept pairs alone: 4 for each and each head dimension, 2.5 times that backward.
        difference: distance of our result from FlexAttention's, relative to its norm.
        missing: contenders that failed, and why.
    """

    name: str
    times: dict[str, list[float]]
    flops: float
    difference: float
    missing: dict[str, str]

    def median(self, contender: str) -> float:
        return statistics.median(self.times[contender])

    def ratio(self, contender: str) -> float:
        """How many times faster ours is."""
        return self.median(contender) / self.median("maskalg")

    def rate(self, contender: str) -> float:
        """TFLOP/s of useful work."""
        return self.flops / self.median(contender) / 1e9


def measure(name: str, case: Case, rounds: int, *, backward: bool) -> Row:
    """Time one case in bfloat16 on the current GPU."""
    inputs = inputs_of(case, torch.bfloat16, gradients=backward)
    functions: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    results: dict[str, torch.Tensor] = {}
    for contender, run in contenders(case, inputs).items():
        try:
            function: Callable[[], Any] = backward_of(run, inputs) if backward else run
            result = function()
        except Exception as problem:
            if contender == "maskalg":
                raise
            missing[contender] = f"{type(problem).__name__}: {problem}".splitlines()[0]
            continue
        functions[contender] = function
        if contender in ("maskalg", "FlexAttention"):
            parts = result if isinstance(result, tuple) else (result,)
            results[contender] = torch.cat([part.detach().flatten().float() for part in parts])
    difference = float("nan")
    if len(results) == 2:
        ours, other = results["maskalg"], results["FlexAttention"]
        difference = float((ours - other).norm() / other.norm())
    results.clear()
    shape = case.shape
    flops = 4.0 * shape.batch * shape.heads * shape.dim * kept_pairs(case)
    return Row(
        name,
        interleaved(functions, rounds),
        flops * (2.5 if backward else 1.0),
        difference,
        missing,
    )


def kept_pairs(case: Case) -> int:
    """Kept pairs of one head, counted in slices of 1024 queries."""
    mask = Mask(case.expression.mask_node, SCORE, case.expression.label)
    heads, length = case.shape.heads, case.shape.length
    total = 0
    for first in range(0, length, 1024):
        rows = min(1024, length - first)
        part = mask.shift(q=first).to_dense(rows, length, heads=heads)
        total += int(part[0, 0].sum())
    return total


def interleaved(
    functions: dict[str, Callable[[], Any]], rounds: int, slot_ms: float = 25
) -> dict[str, list[float]]:
    """Milliseconds a call of each function in each round, one function after the other."""
    repeats: dict[str, int] = {}
    for name, function in functions.items():
        for _ in range(3):
            function()
        repeats[name] = max(3, int(slot_ms / max(_timed(function, 3), 1e-3)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(_timed(function, repeats[name]))
    return times


def _timed(function: Callable[[], Any], repeats: int) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        function()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / repeats
