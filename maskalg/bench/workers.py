"""Rows of the bench in several processes: all compile, then one after the other times on the GPU.

A row compiles for ten seconds, most of it FlexAttention's, and is timed for one. A row is timed
while no process compiles, since a compiled function is called and then uses the GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Lock, Semaphore
from typing import Any, Final

import torch

from . import measure
from .cases import Case
from .measure import Row

Make = Callable[[str], dict[str, Case]]
"""The cases by name, their tensors on a device."""

_FOUND: Final[dict[str, Case]] = {}


def measured(
    make: Make,
    names: Sequence[str],
    rounds: int,
    workers: int,
    *,
    backward: bool,
    peers: Sequence[str] = (),
) -> Iterator[Row]:
    """The rows of these cases, in their order; arguments as of `measure`.

    Raises:
        BrokenProcessPool: if a process ends before its first row.
    """
    work = partial(_row, rounds=rounds, backward=backward, peers=peers)
    if workers == 1:
        _FOUND.update(make("cuda"))
        yield from map(work, names)
        return
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # each worker would start one per core
    context = get_context("spawn")
    gate, permits = context.Lock(), context.Semaphore(workers)
    beside, alone = _Permits(gate, permits, 1), _Permits(gate, permits, workers)
    with ProcessPoolExecutor(workers, context, _begin, (make, beside, alone)) as pool:
        yield from pool.map(work, names)


class _Permits:
    """Some of the permits of all processes. Who waits for all of them keeps later ones waiting."""

    def __init__(self, gate: Lock, permits: Semaphore, count: int) -> None:
        self._gate, self._permits, self._count = gate, permits, count

    def __enter__(self) -> None:
        with self._gate:
            for _ in range(self._count):
                self._permits.acquire()

    def __exit__(self, *raised: object) -> None:
        for _ in range(self._count):
            self._permits.release()


def _begin(make: Make, beside: _Permits, alone: _Permits) -> None:
    """Build the cases of this process, which compiles with one permit and times with all."""
    measure.BESIDE, measure.ALONE = beside, alone
    with beside:
        _FOUND.update(make("cuda"))


def _row(name: str, rounds: int, **options: Any) -> Row:
    row = measure.measure(name, _FOUND[name], rounds, **options)
    torch.cuda.empty_cache()
    return row
