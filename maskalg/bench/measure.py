"""Times of contenders, interleaved: the previous one changes a GPU's speed by several per cent."""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch

from .cases import Case, Contender, mask_of
from .contenders import contenders, inputs_of

FARTHEST: Final = 0.02
"""The relative distance from which on results count as different: several errors of bfloat16."""
_SLOT_MS: Final = 25

ALONE: AbstractContextManager[Any] = nullcontext()
"""Held while functions take turns, so that no other process uses the GPU (`workers.py`)."""

BESIDE: AbstractContextManager[Any] = nullcontext()
"""Held while functions are made and called first, which other processes may do too."""


@dataclass(frozen=True)
class Row:
    """Times of the contenders in a case, and how far their results differ.

    Attributes:
        name: name of the case.
        times: milliseconds in each round, by contender, ours first.
        flops: operations on kept pairs only: two for each pair and head dimension of a product.
            The forward pass has one product over the dimension of keys and one over that of values,
            the backward pass three and two.
        distances: by contender, the distance of its result from ours, relative to the norm of ours.
        missing: contenders that failed or computed something else, and why.
    """

    name: str
    times: dict[str, list[float]]
    flops: float
    distances: dict[str, float]
    missing: dict[str, str]

    def median(self, contender: str) -> float:
        return statistics.median(self.times[contender])

    def ratio(self, contender: str) -> float:
        """How many times faster ours is."""
        return self.median(contender) / self.median("maskalg")

    def rate(self, contender: str) -> float:
        """TFLOP/s of useful work."""
        return self.flops / self.median(contender) / 1e9


def measure(
    name: str, case: Case, rounds: int, *, backward: bool, peers: Sequence[str] = ()
) -> Row:
    """Time one case in bfloat16 on the current GPU, beside these peers, or all."""
    with BESIDE:
        inputs = inputs_of(case, torch.bfloat16, gradients=backward)
        made = contenders(case, inputs, peers)
        functions, distances, missing = first_calls(made, backward=backward)
        torch.cuda.synchronize()
    shape = case.shape
    of_keys, of_values = (3, 2) if backward else (1, 1)
    flops = 2.0 * kept_pairs(case) * (of_keys * shape.dim + of_values * shape.of_values)
    return Row(name, interleaved(functions, rounds), flops, distances, missing)


def first_calls(
    contenders: dict[str, Callable[[], Contender]], *, backward: bool
) -> tuple[dict[str, Callable[[], Any]], dict[str, float], dict[str, str]]:
    """The timed functions, ours first; distances from ours; why contenders are left out.

    A peer that fails, or computes something else, is left out; ours raises.
    """
    functions: dict[str, Callable[[], Any]] = {}
    distances: dict[str, float] = {}
    missing: dict[str, str] = {}
    ours: tuple[torch.Tensor, ...] | None = None
    for name, make in contenders.items():
        try:
            contender = make()
            function = contender.backward() if backward else contender.run
            result = function()
            found = tuple(t.detach() for t in (result if isinstance(result, tuple) else (result,)))
            if ours is None:
                ours = found
            else:
                distances[name] = distance(found, ours)
                if not distances[name] < FARTHEST:
                    raise ArithmeticError(f"its result is {distances[name]:.1e} from ours")
        except Exception as problem:
            if ours is None:
                raise
            missing[name] = f"{type(problem).__name__}: {problem}".splitlines()[0]
            continue
        functions[name] = function
    return functions, distances, missing


def distance(found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> float:
    """The distance of all tensors together, relative to the norm of `wanted`."""
    pairs = [(f.float(), w.float()) for f, w in zip(found, wanted, strict=True)]
    apart = sum(float((f - w).square().sum()) for f, w in pairs)
    return math.sqrt(apart / sum(float(w.square().sum()) for _, w in pairs))


def kept_pairs(case: Case) -> int:
    """Kept pairs of all heads and sequences."""
    shape = case.shape
    return mask_of(case).cost(shape.length, batch=shape.batch, heads=shape.heads).kept


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds a call of each function in each round, one function after the other.

    Each round has another order, the same in every run, so that none always follows the one that
    heats the GPU most. As in `timeit`, Python collects no garbage in between: after a compilation,
    one collection takes as long as a short call.
    """
    repeats: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in functions}
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with ALONE:
            for name, function in functions.items():
                for _ in range(3):
                    function()
                repeats[name] = max(3, int(_SLOT_MS / max(_timed(function, 3), 1e-3)))
            order = random.Random(0)
            for _ in range(rounds):
                for name in order.sample(list(functions), len(functions)):
                    times[name].append(_timed(functions[name], repeats[name]))
    finally:
        if collects:
            gc.enable()
    return times


def _timed(function: Callable[[], Any], repeats: int) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        function()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / repeats
