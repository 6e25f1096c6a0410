"""Rows of the bench in several processes: all compile, and one at a time times on the GPU.

A row compiles for ten seconds, most of it FlexAttention's, and is timed for one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
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

    First calls of one process may run while another times: with several workers, take more rounds
    and look at medians.

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
    with ProcessPoolExecutor(workers, context, _begin, (make, context.Lock())) as pool:
        yield from pool.map(work, names)


def _begin(make: Make, alone: Any) -> None:
    """Build the cases of this process, which times while it holds `alone`."""
    _FOUND.update(make("cuda"))
    measure.ALONE = alone


def _row(name: str, rounds: int, **options: Any) -> Row:
    row = measure.measure(name, _FOUND[name], rounds, **options)
    torch.cuda.empty_cache()
    return row
