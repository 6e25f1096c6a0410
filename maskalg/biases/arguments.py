"""What score terms accept: floating tensors of a given number of dimensions."""

from __future__ import annotations

import torch

from .. import errors
from ..parameters import Table


def real_table(call: str, name: str, value: object, ranks: tuple[int, ...], wanted: str) -> Table:
    """A floating tensor with as many dimensions as `ranks` allows; `wanted` says which."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        found = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise errors.tensor_dtype(call, name, found, "a floating-point tensor")
    if value.ndim not in ranks:
        raise errors.tensor_shape(call, name, list(value.shape), wanted)
    return Table(name, value)
