"""Tables of packed segments, by one kernel each instead of several operations of torch."""

from __future__ import annotations

from typing import Any, Final

import torch
from maskalg_kernels import segments as kernels

from ...values.masks.documents.shared_prefix import SEGMENT_DEPTHS, SEGMENT_ENDS
from .launching.spec import OF_ALL

_AT_ONCE: Final = 512  # positions, and segments, of a step


def segment_ends(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """The end of the last segment that continues each position's segment, int32 `[total]`."""
    return _of_positions(kernels.segment_ends, torch.int32, cu_seqlens, parents, total)


def segment_depths(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """The position of each token in its own sequence, int64 `[total]`."""
    return _of_positions(kernels.segment_depths, torch.int64, cu_seqlens, parents, total)


def _of_positions(
    kernel: Any, dtype: torch.dtype, cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int
) -> torch.Tensor:
    with torch.cuda.device_of(cu_seqlens):
        count = len(parents)
        found = cu_seqlens.new_zeros(total, dtype=dtype)
        given = (cu_seqlens.contiguous(), parents.contiguous(), found, count, total)
        kernel[(count + 1,)](*given, BLOCK=_AT_ONCE, **OF_ALL)
    return found


torch.library.impl(SEGMENT_ENDS, "CUDA", segment_ends)
torch.library.impl(SEGMENT_DEPTHS, "CUDA", segment_depths)
