"""Tensors that users give, or lists and arrays of entries; checks of the order they declare."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from .. import errors
from .parameters import Order
from .watched import watched

Entries = torch.Tensor | Sequence[Any] | NDArray[Any]
"""A tensor, or its entries: numbers in a list, lists of these for rows, or an array of numpy.

They become a tensor on the CPU, without a gradient; an array is copied, since later writes to it
would go unnoticed. For a GPU give a tensor, or move the expression by `.to(device)`. Flags are True
and False: among numbers they are refused, not counted as 1 and 0.
"""

INTEGER_DTYPES: Final = (torch.int32, torch.int64)


def as_tensor(value: object) -> object:
    """Entries as a tensor; anything else as it is, and lists of rows that differ in length."""
    array = value if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else None
    if array is None and not (isinstance(value, (list, tuple, range)) and _alike(value)):
        return value
    try:
        tensor = torch.tensor(value) if array is None else torch.from_numpy(_plain(array))
    except (TypeError, ValueError, RuntimeError):
        return value
    # An empty list has no dtype, and becomes integers; an empty Boolean array stays Boolean.
    return tensor if tensor.numel() or tensor.dtype == torch.bool else tensor.long()


def kind_of(value: object) -> str:
    """The name of a value in errors: the dtype of a tensor or of entries, or the type."""
    tensor = as_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return type(value).__name__
    return str(tensor.dtype) if tensor is value else f"{type(value).__name__} of {tensor.dtype}"


def is_listed(value: object) -> bool:
    """Whether a value is a tensor, or stands for one: a list or an array."""
    return isinstance(value, (torch.Tensor, np.ndarray, list, tuple, range))


def readable(tensor: torch.Tensor) -> bool:
    """Whether entries can be read: there are values, and no device to wait for."""
    return tensor.device.type == "cpu" and not watched(tensor)


def integers(call: str, name: str, value: object, wanted: str = "") -> torch.Tensor:
    """A tensor of 32-bit or 64-bit integers."""
    return _checked(call, name, value, INTEGER_DTYPES, wanted or _INTEGERS)


def booleans(call: str, name: str, value: object) -> torch.Tensor:
    """A Boolean tensor."""
    return _checked(call, name, value, (torch.bool,), "a bool tensor")


def booleans_or_integers(call: str, name: str, value: object) -> torch.Tensor:
    """A tensor of flags, or of integers that stand for them."""
    dtypes = (torch.bool, *INTEGER_DTYPES)
    return _checked(call, name, value, dtypes, "a bool or integer tensor")


def of_rank(
    call: str, name: str, tensor: torch.Tensor, ranks: tuple[int, ...], wanted: str
) -> torch.Tensor:
    """The tensor, if it has as many dimensions as `ranks` allows; `wanted` says which."""
    if tensor.ndim not in ranks:
        raise errors.tensor_shape(call, name, list(tensor.shape), wanted)
    return tensor


def reals(
    call: str, name: str, value: object, wanted: str = "a floating-point tensor"
) -> torch.Tensor:
    """A floating-point tensor; integers in a list or an array become real numbers."""
    tensor = real_entries(value)
    if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point:
        return tensor
    raise errors.tensor_dtype(call, name, kind_of(value), wanted)


def real_entries(value: object) -> object:
    """Entries as a tensor, with integers as real numbers; tensors as they are."""
    tensor = as_tensor(value)
    if tensor is value or not isinstance(tensor, torch.Tensor):
        return value
    return tensor.to(torch.get_default_dtype()) if tensor.dtype in INTEGER_DTYPES else tensor


_INTEGERS: Final = "an int32 or int64 tensor"


def _checked(
    call: str, name: str, value: object, dtypes: tuple[torch.dtype, ...], wanted: str
) -> torch.Tensor:
    tensor = as_tensor(value)
    if isinstance(tensor, torch.Tensor) and tensor.dtype in dtypes:
        return tensor
    raise errors.tensor_dtype(call, name, kind_of(value), wanted)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that torch and tables accept.

    It has no negative strides, its bytes in the native order, and integers of 32 or 64 bits.
    """
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind in "iu" and dtype != np.int32 and np.can_cast(dtype, np.int64):
        dtype = np.dtype(np.int64)
    return array.astype(dtype, order="C")


def _alike(values: Sequence[object]) -> bool:
    """Whether lists hold only numbers or only flags; tensors in a list would lose gradients."""
    return _all(values, flags=False) or _all(values, flags=True)


def _all(values: Sequence[object], flags: bool) -> bool:
    return all(
        _all(value, flags)
        if isinstance(value, (list, tuple))
        else isinstance(value, (bool, np.bool_) if flags else Real)
        and (flags or not isinstance(value, bool))
        for value in values
    )


def lies_in(order: Order, entries: torch.Tensor) -> torch.Tensor:
    """Whether each row of `[…, length]` has this order, a Boolean `[]` on the same device."""
    if order == "ascending":
        return (entries[..., 1:] >= entries[..., :-1]).all()
    # Contiguous entries form as many runs as there are different entries in the row.
    return (_changes(entries) == _changes(entries.sort(dim=-1).values)).all()


def check(call: str, name: str, entries: torch.Tensor, order: Order | None) -> None:
    """Refuse entries on the CPU that do not lie in the declared order; a GPU is not waited for.

    Raises:
        ValueError: entries of another order.
    """
    if order is not None and readable(entries) and not bool(lies_in(order, entries)):
        raise out_of_order(call, name, order)


def ensure(name: str, entries: torch.Tensor, order: Order) -> None:
    """Refuse entries of another order on any device, before tables are made from them.

    On an NVIDIA GPU this is an assertion on the device: the host does not wait, a CUDA graph
    repeats it, and its error comes at the next synchronisation. Other GPUs ignore such assertions,
    so the host reads the result.
    """
    if entries.device.type == "cpu":
        check("attention", name, entries, order)
    elif entries.is_cuda and torch.version.hip is None:
        torch._assert_async(lies_in(order, entries), str(out_of_order("", name, order)))
    elif not bool(lies_in(order, entries)):
        raise out_of_order("attention", name, order)


def _changes(entries: torch.Tensor) -> torch.Tensor:
    """How often neighbours differ in each row."""
    return (entries[..., 1:] != entries[..., :-1]).sum(dim=-1)


def out_of_order(call: str, name: str, order: str) -> errors.MaskValueError:
    wanted = "ascend" if order == "ascending" else "lie next to each other where they are equal"
    return errors.MaskValueError(
        f"{call}: entries of {name} must {wanted}, for the table was declared {order!r}. Write "
        "document.from_cu_seqlens(cu_seqlens) for packed documents, and document(ids), without an "
        "order, for ids in any order."
    )
