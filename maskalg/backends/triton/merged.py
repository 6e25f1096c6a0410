"""The launch that joins attention over parts of the keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from maskalg_kernels import merged as kernels

from .launching.launch import kind_of_argument, launch
from .launching.spec import OF_ALL


def merged(
    outs: Sequence[torch.Tensor], lses: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse of all parts, like `backends.merge.merge`, without gradients.

    Outputs are `[..., value_dim]`, float16, bfloat16 or float32.
    """
    shape = outs[0].shape
    if len(shape) != 4:
        outs = [out.reshape(1, 1, -1, shape[-1]) for out in outs]
        lses = [lse.reshape(1, 1, -1) for lse in lses]
    like = torch.preserve_format if outs[0].stride(-1) == 1 else torch.contiguous_format
    found = torch.empty_like(outs[0], memory_format=like)
    lse = torch.empty(lses[0].shape, dtype=torch.float32, device=found.device)
    fill_merged(outs, lses, found, lse)
    return found.view(shape), lse.view(shape[:-1])


def fill_merged(
    outs: Sequence[torch.Tensor],
    lses: Sequence[torch.Tensor],
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Like `backends.merge.merge_into`; outputs are `[batch, heads, length, value_dim]`."""
    outs = [one if one.stride(-1) == 1 else one.contiguous() for one in outs]
    lses = [one if one.stride(-1) == 1 else one.contiguous() for one in lses]
    columns = triton.next_power_of_2(max(out.shape[-1], 1))
    programs = triton.cdiv(lse.numel(), max(kernels.ROWS_BY_COLUMNS.value // columns, 1))
    tensors = [tuple(outs), tuple(lses), out, lse]
    numbers = [lse.numel(), *out.shape[1:3]]
    of_outs = zip(*[one.stride()[:3] for one in (*outs, out)], strict=True)
    strides = [*of_outs, *zip(*[one.stride()[:2] for one in (*lses, lse)], strict=True)]
    arguments = [*tensors, *numbers, *strides]
    # Triton compiles variants for strides of 1, multiples of 16 and numbers past 32 bits.
    kinds = [n == 1 or (n & 15 == 0, n >> 31) for each in strides for n in each]
    long = [n >> 31 for n in numbers]
    key = (out.device, out.shape[-1], *map(kind_of_argument, tensors), *long, *kinds)
    constants = {"DIM": out.shape[-1], "COLUMNS": columns, **OF_ALL}
    with torch.cuda.device_of(out):
        launch(kernels.merged, key, (programs, 1), arguments, lambda: (arguments, constants))
