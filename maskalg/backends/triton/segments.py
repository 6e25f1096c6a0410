"""Tables of packed segments by one kernel, for the operator that builds them of torch's."""

from __future__ import annotations

from typing import Final

import torch
from maskalg_kernels import segments as kernels

from ...values.masks.documents.shared_prefix import SEGMENT_ENDS

_AT_ONCE: Final = 512  # positions, and segments, of a step


def segment_ends(cu_seqlens: torch.Tensor, parents: torch.Tensor, total: int) -> torch.Tensor:
    """Where the last segment that continues each position's ends, int32 `[total]`."""
    with torch.cuda.device_of(cu_seqlens):
        count = len(parents)
        end = cu_seqlens.new_zeros(total, dtype=torch.int32)
        given = (cu_seqlens.contiguous(), parents.contiguous(), end, count, total)
        kernels.segment_ends[(count + 1,)](*given, BLOCK=_AT_ONCE)
    return end


torch.library.impl(SEGMENT_ENDS, "CUDA", segment_ends)
