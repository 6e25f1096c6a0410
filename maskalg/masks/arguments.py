"""What atoms accept: integers within declared bounds, and integer tensors per batch or head."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..nodes import Node
from ..parameters import INT32_MAX, INTEGERS, Parameter, Scalar, Table

INTEGER_DTYPES = (torch.int32, torch.int64)


def shown(value: object) -> str:
    """An argument as an error message names it.

    A number that `torch.compile` keeps open has no text; it is left out there.
    """
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} tensor"
    return "…" if torch.compiler.is_compiling() else repr(value)


def integer(call: str, name: str, value: object, low: int) -> tuple[Node, Parameter]:
    """A named integer >= `low`, as a formula leaf and as what the label prints."""
    if isinstance(value, bool) or not isinstance(value, INTEGERS):
        raise errors.not_an_integer(call, name, value, low)
    if value < low:
        raise errors.below(call, name, value, low)
    if value > INT32_MAX:
        raise errors.above_int32(call, name, value)
    parameter = Scalar(name, value, low)
    return nodes.scalar(parameter), parameter


def integer_or_per_batch(call: str, name: str, value: object, low: int) -> tuple[Node, Parameter]:
    """An integer, or an integer tensor `[batch]` (or 0-d), clamped below at `low` when read."""
    if not isinstance(value, torch.Tensor):
        return integer(call, name, value, low)
    if value.dtype not in INTEGER_DTYPES:
        raise errors.tensor_dtype(call, name, value.dtype, "an int32 or int64 tensor")
    if value.ndim > 1:
        raise errors.tensor_shape(call, name, list(value.shape), "[] or [batch]")
    table = Table(name, value, low)
    return nodes.read(table, *([nodes.BATCH] * value.ndim)), table


def positions(call: str, name: str, value: object) -> Table:
    """An integer tensor over positions, `[length]` or `[batch, length]`."""
    if not isinstance(value, torch.Tensor):
        raise errors.tensor_dtype(call, name, type(value).__name__, "an int32 or int64 tensor")
    if value.dtype not in INTEGER_DTYPES:
        raise errors.tensor_dtype(call, name, value.dtype, "an int32 or int64 tensor")
    if value.ndim not in (1, 2):
        raise errors.tensor_shape(call, name, list(value.shape), "[length] or [batch, length]")
    return Table(name, value)


def at(table: Table, position: Node) -> Node:
    """`table` at a position, per batch when the table is."""
    batch = [nodes.BATCH] if table.tensor.ndim == 2 else []
    return nodes.read(table, *batch, position)
