"""Where the real tokens of padded rows lie, by one kernel."""

from __future__ import annotations

from typing import Final

import torch
from maskalg_kernels import padding as kernels

from ...values.masks.padding import REAL_BOUNDS
from .launching.launch import kind_of_argument, launch
from .launching.spec import OF_ALL

_AT_ONCE: Final = 8192  # places of a step, a byte each


def real_bounds(kept: torch.Tensor) -> torch.Tensor:
    """The first real token of each row and the place past the last, as `padding.real_bounds`."""
    kept = kept if kept.stride(1) == 1 else kept.contiguous()
    batch, length = kept.shape
    found = torch.empty((2, batch), dtype=torch.int32, device=kept.device)
    if not batch:
        return found
    arguments = [kept.view(torch.uint8), found, batch, length, kept.stride(0)]
    key = ("real_bounds", kept.device, *map(kind_of_argument, arguments[:2]), kept.stride(0) >> 31)
    constants = {"BLOCK": _AT_ONCE, "num_warps": 8, **OF_ALL}
    with torch.cuda.device_of(kept):
        launch(kernels.real_bounds, key, (batch, 1), arguments, lambda: (arguments, constants))
    return found


torch.library.impl(REAL_BOUNDS, "CUDA", real_bounds)
