"""Checked arguments of masks and biases: integers within bounds, and tensors of some rank."""

from __future__ import annotations

from typing import Final, Literal, get_args

import torch

from .. import errors
from ..formula import nodes
from ..formula.entries import booleans, check, integers, is_listed, of_rank, readable, reals
from ..formula.nodes import Node
from ..formula.parameters import (
    INT32_MAX,
    Order,
    Parameter,
    Scalar,
    Table,
    plain_number,
    whole_number,
)

_OVER_POSITIONS: Final = "[length] or [batch, length]"


def shown(value: object) -> str:
    """An argument as error messages print it; "…" where `torch.compile` makes it symbolic."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} tensor"
    return "…" if torch.compiler.is_compiling() else repr(value)


def integer(call: str, name: str, value: object, low: int) -> tuple[Node, Parameter]:
    """A named integer >= `low`: the leaf of the formula, and the parameter that labels print."""
    value = whole_number(call, name, plain_number(value), low)
    if value > INT32_MAX:
        raise errors.above_int32(call, name, value)
    parameter = Scalar(name, value, low)
    return nodes.scalar(parameter), parameter


def integer_or_each(
    call: str, name: str, value: object, low: int, of: Literal["batch", "heads"]
) -> tuple[Node, Parameter]:
    """An integer, or an integer tensor: 0-d, `[batch]` or `[heads]` as `of` says, `[batch, heads]`.

    Entries are clamped at `low`. If `low` is above 0, entries on the CPU are checked first.
    """
    if not is_listed(value):
        return integer(call, name, value, low)
    tensor = integers(call, name, value, "an integer or an int32 or int64 tensor")
    of_rank(call, name, tensor, (0, 1, 2), f"[], [{of}] or [batch, heads]")
    # Clamping keeps a prefix below 0 empty, but would turn a window of 0 into one of 1.
    if low > 0 and tensor.numel() and readable(tensor) and int(tensor.min()) < low:
        raise errors.MaskValueError(
            f"{call}: entries of {name} must be >= {low}, got {int(tensor.min())}."
        )
    table = Table(name, tensor, low)
    alone = nodes.BATCH if of == "batch" else nodes.HEAD
    indices = [[], [alone], [nodes.BATCH, nodes.HEAD]][tensor.ndim]
    return nodes.read(table, *indices), table


def positions(call: str, name: str, value: object, order: Order | None = None) -> Table:
    """An integer tensor over positions, `[length]` or `[batch, length]`, in a declared order."""
    tensor = of_rank(call, name, integers(call, name, value), (1, 2), _OVER_POSITIONS)
    if order not in (None, *get_args(Order)):
        raise errors.MaskValueError(
            f"{call}: order must be 'contiguous' (equal entries lie next to each other), "
            f"'ascending' or None, got {order!r}."
        )
    check(call, name, tensor, order)
    return Table(name, tensor, order=order)


def flags(call: str, name: str, value: object) -> Table:
    """A Boolean tensor over positions, `[length]` or `[batch, length]`."""
    return Table(name, of_rank(call, name, booleans(call, name, value), (1, 2), _OVER_POSITIONS))


def flags_per_head(call: str, name: str, value: object) -> Table:
    """A Boolean tensor over positions for all heads, per head, or per batch and head."""
    wanted = "[length], [heads, length] or [batch, heads, length]"
    return Table(name, of_rank(call, name, booleans(call, name, value), (1, 2, 3), wanted))


def real_table(call: str, name: str, value: object, ranks: tuple[int, ...], wanted: str) -> Table:
    """A floating tensor of one of the `ranks`; `wanted` describes the shapes in errors."""
    return Table(name, of_rank(call, name, reals(call, name, value), ranks, wanted))


def entries_within(call: str, name: str, tensor: torch.Tensor, low: int, high: int) -> None:
    """Refuse entries outside `low … high - 1`, if they can be read without waiting for a device."""
    if tensor.numel() == 0 or not readable(tensor):
        return
    least, most = (int(entry) for entry in tensor.aminmax())
    if least < low or most >= high:
        raise errors.MaskValueError(
            f"{call}: entries of {name} must lie in {low} … {high - 1}, got entries from {least} "
            f"to {most}."
        )


def marked(places: torch.Tensor, count: int) -> torch.Tensor:
    """Flags `[…, count]`, True at the `places` `[…, n]`; places past 0 … count - 1 are ignored."""
    places = places.long()
    # One extra entry takes the places that are ignored.
    rest = torch.where((places >= 0) & (places < count), places, count)
    shape = (*places.shape[:-1], count + 1)
    flags = torch.zeros(shape, dtype=torch.bool, device=places.device).scatter(-1, rest, True)
    return flags[..., :count].contiguous()


def at_head(table: Table, position: Node) -> Node:
    """`table` at a position, per head, or per batch and head, when the table is."""
    leading = [nodes.BATCH, nodes.HEAD][3 - table.tensor.ndim :]
    return nodes.read(table, *leading, position)


def at_pair(table: Table) -> Node:
    """`table` at the query and the key, per head, or per batch and head, when the table is."""
    shape = table.tensor.shape
    indices = [nodes.BATCH, nodes.HEAD, nodes.Q, nodes.K][-len(shape) :]
    # A single row or column serves every query or key; batch and head broadcast when read.
    for axis in (-2, -1):
        if shape[axis] == 1:
            indices[axis] = nodes.const(0)
    return nodes.read(table, *indices)


def at(table: Table, position: Node) -> Node:
    """`table` at a position, per batch when the table is."""
    batch = [nodes.BATCH] if table.tensor.ndim == 2 else []
    return nodes.read(table, *batch, position)
