"""Functions of real numbers by their names in formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch


def function_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of a `call` node."""
    if name == "sqrt":
        return square_root
    return cast(Callable[[torch.Tensor], torch.Tensor], getattr(torch, name))


def square_root(x: torch.Tensor) -> torch.Tensor:
    """The number that is nearest to the root, as kernels compute it.

    MKL, by which torch computes roots on a CPU, is off by the last bit on some machines; a mask
    that compares roots would keep other pairs there.
    """
    by_mkl = x.dtype == torch.float32 and not x.is_cuda
    return x.double().sqrt().float() if by_mkl else x.sqrt()
