"""Tables of masks, made by one kernel each instead of several operations of torch."""

from __future__ import annotations

from typing import Any, Final

import torch
from maskalg_kernels import padding, segments

from ...values.masks.documents.shared_prefix import SEGMENT_DEPTHS, SEGMENT_ENDS
from ...values.masks.padding import REAL_BOUNDS
from .launching.launch import kind_of_argument, launch
from .launching.spec import OF_ALL

_AT_ONCE: Final = 512  # positions, and segments, of a step
_BYTES_AT_ONCE: Final = 8192  # places of padded rows of a step


def segment_ends(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """The end of the last segment that continues each position's segment, int32 `[total]`."""
    return _of_positions(segments.segment_ends, torch.int32, cu_seqlens, parents, total)


def segment_depths(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """The position of each token in its own sequence, int64 `[total]`."""
    return _of_positions(segments.segment_depths, torch.int64, cu_seqlens, parents, total)


def _of_positions(
    kernel: Any, dtype: torch.dtype, cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int
) -> torch.Tensor:
    with torch.cuda.device_of(cu_seqlens):
        count = len(parents)
        found = cu_seqlens.new_zeros(total, dtype=dtype)
        given = (cu_seqlens.contiguous(), parents.contiguous(), found, count, total)
        kernel[(count + 1,)](*given, BLOCK=_AT_ONCE, **OF_ALL)
    return found


def real_bounds(kept: torch.Tensor) -> torch.Tensor:
    """The first real token of each row and the place past the last, as `padding.real_bounds`."""
    kept = kept if kept.stride(1) == 1 else kept.contiguous()
    batch, length = kept.shape
    found = torch.empty((2, batch), dtype=torch.int32, device=kept.device)
    if not batch:
        return found
    arguments = [kept.view(torch.uint8), found, batch, length, kept.stride(0)]
    key = ("real_bounds", kept.device, *map(kind_of_argument, arguments[:2]), kept.stride(0) >> 31)
    constants = {"BLOCK": _BYTES_AT_ONCE, "num_warps": 8, **OF_ALL}
    with torch.cuda.device_of(kept):
        launch(padding.real_bounds, key, (batch, 1), arguments, lambda: (arguments, constants))
    return found


torch.library.impl(SEGMENT_ENDS, "CUDA", segment_ends)
torch.library.impl(SEGMENT_DEPTHS, "CUDA", segment_depths)
torch.library.impl(REAL_BOUNDS, "CUDA", real_bounds)
