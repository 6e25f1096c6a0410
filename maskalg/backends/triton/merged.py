"""The launch that joins attention over parts of the keys."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import torch
from maskalg_kernels import merged as kernels

from .launching.launch import kind_of_argument, launch
from .launching.spec import OF_ALL

_Strides = tuple[int, ...]


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
    outs = tuple([one if one.stride(-1) == 1 else one.contiguous() for one in outs])
    lses = tuple([one if one.stride(-1) == 1 else one.contiguous() for one in lses])
    of_outs = (*[one.stride() for one in outs], out.stride())
    of_lses = (*[one.stride() for one in lses], lse.stride())
    programs, numbers, kinds, constants = _layout(out.shape, of_outs, of_lses)
    tensors = [outs, lses, out, lse]
    arguments = [*tensors, *numbers]
    key = (out.device, kinds, *map(kind_of_argument, tensors))
    with torch.cuda.device_of(out):
        launch(kernels.merged, key, (programs, 1), arguments, lambda: (arguments, constants))


@lru_cache(maxsize=1024)
def _layout(
    shape: torch.Size, of_outs: tuple[_Strides, ...], of_lses: tuple[_Strides, ...]
) -> tuple[int, tuple[Any, ...], Hashable, dict[str, Any]]:
    """The programs, the kernel's numbers, the facts about them that choose a variant, and its
    constants; from the shape of the output, and strides of the parts and then of the results."""
    dim, rows = shape[-1], math.prod(shape[:-1])
    columns = 1 << max(dim - 1, 0).bit_length()
    programs = -(-rows // max(kernels.ROWS_BY_COLUMNS.value // columns, 1))
    strides = (*zip(*[one[:3] for one in of_outs], strict=True),)
    strides += (*zip(*[one[:2] for one in of_lses], strict=True),)
    numbers = (rows, *shape[1:3])
    # Triton compiles variants for strides of 1, multiples of 16 and numbers past 32 bits.
    kinds = [n == 1 or (n & 15 == 0, n >> 31) for each in strides for n in each]
    constants = {"DIM": dim, "COLUMNS": columns, **OF_ALL}
    return programs, (*numbers, *strides), (dim, *[n >> 31 for n in numbers], *kinds), constants
