"""Whether a tensor is as it was when something was made of its contents."""

from __future__ import annotations

import torch


def state_of(tensor: torch.Tensor) -> tuple[int, int, torch.Size]:
    """What changes when a tensor is written to, or other memory put into it.

    `tensor.data = other` does the latter, and is no write that PyTorch counts.
    """
    # A fake tensor has no memory of its own, and one of a transform raises an error.
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    try:
        place = tensor.data_ptr() if plain else 0
    except RuntimeError:
        place = 0
    return tensor._version, place, tensor.shape
