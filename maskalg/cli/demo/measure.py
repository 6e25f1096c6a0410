"""Time and memory of a call, on the CPU and on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def seconds(call: Callable[[], object], device: torch.device, *, times: int = 1) -> float:
    """Median wall-clock time of a call."""
    return median(_seconds(call, device) for _ in range(times))


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Most bytes of tensors the call allocated that were alive at one moment.

    A GPU's allocator counts them. On the CPU, tensors are followed operation by operation, without
    the scratch memory inside an operation of torch.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    followed = _Allocated()
    with followed:
        call()
    return followed.peak


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


class _Allocated(TorchDispatchMode):
    """Follows the storages that operations return and did not get."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = _storages((args, kwargs))
        for place, reference in _storages(result).items():
            if place not in given:
                self._alive[place] = reference
        self._alive = {p: r for p, r in self._alive.items() if not r[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return result


def _storages(values: object) -> dict[int, tuple[StorageWeakRef, int]]:
    storages = [v.untyped_storage() for v in tree_leaves(values) if isinstance(v, torch.Tensor)]
    references = [(StorageWeakRef(storage), storage.nbytes()) for storage in storages]
    return {reference.cdata: (reference, size) for reference, size in references}
