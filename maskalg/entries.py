"""Tensors that users give: as such, or as lists or arrays of their entries."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from . import errors

Entries = torch.Tensor | Sequence[Any] | NDArray[Any]
"""A tensor, or its entries: numbers in a list, lists of these for rows, or an array of numpy.

They become a tensor on the CPU, without a gradient; an array is copied, for what is written to it
later would go unseen. For a GPU give a tensor, or move the expression by `.to(device)`.
"""

INTEGER_DTYPES: Final = (torch.int32, torch.int64)


def as_tensor(value: object) -> object:
    """Entries as a tensor; anything else as it is, and lists of rows that differ in length."""
    array = value if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else None
    if array is None and not (isinstance(value, (list, tuple)) and _of_numbers(value)):
        return value
    try:
        tensor = torch.tensor(value) if array is None else torch.from_numpy(_in_order(array))
    except (TypeError, ValueError, RuntimeError):
        return value
    return tensor if tensor.numel() else tensor.long()


def integers(call: str, name: str, value: object, wanted: str = "") -> torch.Tensor:
    """A tensor of 32-bit or 64-bit integers."""
    return _checked(call, name, as_tensor(value), INTEGER_DTYPES, wanted or _INTEGERS)


def booleans(call: str, name: str, value: object) -> torch.Tensor:
    """A Boolean tensor."""
    return _checked(call, name, as_tensor(value), (torch.bool,), "a bool tensor")


def booleans_or_integers(call: str, name: str, value: object) -> torch.Tensor:
    """A tensor of flags, or of integers that stand for them."""
    dtypes = (torch.bool, *INTEGER_DTYPES)
    return _checked(call, name, as_tensor(value), dtypes, "a bool or integer tensor")


def reals(call: str, name: str, value: object) -> torch.Tensor:
    """A floating-point tensor; whole numbers in a list or an array count as real ones."""
    tensor = as_tensor(value)
    if tensor is not value and isinstance(tensor, torch.Tensor) and tensor.dtype in INTEGER_DTYPES:
        return tensor.to(torch.get_default_dtype())
    if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point:
        return tensor
    return _checked(call, name, tensor, (), "a floating-point tensor")


_INTEGERS: Final = "an int32 or int64 tensor"


def _checked(
    call: str, name: str, value: object, dtypes: tuple[torch.dtype, ...], wanted: str
) -> torch.Tensor:
    if isinstance(value, torch.Tensor) and value.dtype in dtypes:
        return value
    found = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
    raise errors.tensor_dtype(call, name, found, wanted)


def _in_order(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that torch takes: one that runs backwards or has its bytes swapped it does not."""
    return array.astype(array.dtype.newbyteorder("="), order="C")


def _of_numbers(values: Sequence[object]) -> bool:
    """Whether there is nothing but numbers in lists: tensors in them would lose their gradient."""
    return all(
        _of_numbers(value) if isinstance(value, (list, tuple)) else isinstance(value, Real)
        for value in values
    )
