"""The launch that joins attention over parts of the keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from maskalg_kernels import merged as kernels


def merged(
    outs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse of all parts, as `backends.merge.merge` gives them, without gradients.

    Outputs are `[..., value_dim]`, float16, bfloat16 or float32.
    """
    shape = outs[0].shape
    if len(shape) != 4:
        outs = [out.reshape(1, 1, -1, shape[-1]) for out in outs]
    like = torch.preserve_format if outs[0].stride(-1) == 1 else torch.contiguous_format
    found = torch.empty_like(outs[0], memory_format=like)
    outs = [out if out.stride() == found.stride() else found.clone().copy_(out) for out in outs]
    lses = [lse.float().contiguous() for lse in lses]
    lse = torch.empty_like(lses[0])
    columns = triton.next_power_of_2(max(shape[-1], 1))
    programs = triton.cdiv(lse.numel(), max(kernels.ROWS_BY_COLUMNS.value // columns, 1))
    with torch.cuda.device_of(found):
        kernels.merged[(programs,)](
            tuple(outs), tuple(lses), found, lse,
            lse.numel(), *found.shape[1:3], *found.stride()[:3],
            DIM=shape[-1], COLUMNS=columns,
        )  # fmt: skip
    return found.view(shape) if len(shape) != 4 else found, lse
