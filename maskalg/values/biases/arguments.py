"""What score terms accept: floating tensors of a given number of dimensions."""

from __future__ import annotations

from ... import errors
from ...formula.entries import reals
from ...formula.parameters import Table


def real_table(call: str, name: str, value: object, ranks: tuple[int, ...], wanted: str) -> Table:
    """A floating tensor with as many dimensions as `ranks` allows; `wanted` says which."""
    tensor = reals(call, name, value)
    if tensor.ndim not in ranks:
        raise errors.tensor_shape(call, name, list(tensor.shape), wanted)
    return Table(name, tensor)
