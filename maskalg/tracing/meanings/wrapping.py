"""Integers narrower than 64 bits: torch computes in their dtype, where results may wrap."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

import torch

from ...formula.nodes import Node
from ...formula.parameters import Scalar, Table
from .. import messages

NARROW: Final = (torch.uint8, torch.int8, torch.int16, torch.uint16)
ENDS: Final = sorted({end for x in map(torch.iinfo, NARROW) for end in (x.min, x.max + 1)})
"""Limits of these dtypes: integers between the same two neighbours fit the same dtypes."""
_COMPUTED: Final = (
    *("add", "mul", "floordiv", "mod", "min", "max", "where"), *("bitand", "bitor", "bitxor"),
)  # fmt: skip
"""Operations that torch computes in the dtype of their operands."""


class _Converted(Node):
    """A formula that the function converted to 32 or 64 bits; its value is the same."""

    __slots__ = ()


class _Short(_Converted):
    """A formula that the function converted to 32 bits."""

    __slots__ = ()


def of_32_bits(node: Node) -> Node:
    """An integer formula after `x.int()`."""
    return (
        node if node.op == "const" else _Short(node.op, node.kind, node.args, node.data, node.own)
    )


def converted(node: Node) -> Node:
    """The formula after `x.int()` or `x.long()`: its entries do not wrap any more."""
    if _small([node]) is None:
        return node
    return _Converted(node.op, node.kind, node.args, node.data, node.own)


def refuse_wrapping(sign: str, *operands: Node) -> None:
    """Refuse arithmetic on entries of 8 or 16 bits, alone or with numbers: torch wraps it."""
    found = _small(operands)
    if found is not None and found[1] in NARROW:
        raise messages.traced_narrow(sign, *found)


def refuse_numbers(*operands: Node) -> None:
    """Refuse a number that does not fit the dtype of the other operands: torch wraps it."""
    found = _small(operands)
    if found is None:
        return
    ends = torch.iinfo(found[1])
    for node in operands:
        own = node.own[0] if node.op == "scalar" else None
        number = own.value if isinstance(own, Scalar) else node.data
        if _is_number(node) and isinstance(number, int) and not ends.min <= number <= ends.max:
            raise messages.traced_number(number, *found)


def dtype_of(node: Node) -> torch.dtype:
    """The dtype torch would give a value, as far as `x.type_as(value)` needs to know it."""
    if node.kind == "bool":
        return torch.bool
    if node.kind == "int":
        found = _small([node])
        return torch.int64 if found is None else found[1]
    if "score" in node.ops():
        return torch.float32
    tables = [part.own[0] for part in node.walk() if part.op == "read" and part.kind == "real"]
    dtypes = [table.tensor.dtype for table in tables if isinstance(table, Table)]
    return max(dtypes, key=lambda dtype: dtype.itemsize, default=torch.float32)


def _is_number(node: Node) -> bool:
    return node.op in ("const", "scalar")


def _small(operands: Iterable[Node]) -> tuple[str, torch.dtype] | None:
    """The name of an operand narrower than 64 bits, and the dtype torch computes them in.

    None if an operand has 64 bits or is real, or if its dtype is not known.
    """
    found = []
    for node in operands:
        if node.kind == "real":
            return None
        if node.kind == "int" and not _is_number(node):
            found.append(_small_integer(node))
    known = [each for each in found if each is not None]
    dtypes = {dtype for _, dtype in known}
    if not known or len(known) < len(found):
        return None
    if torch.uint16 in dtypes and len(dtypes) > 1:  # torch refuses such operands
        return None
    return known[0][0], reduce(torch.promote_types, dtypes)


def _small_integer(node: Node) -> tuple[str, torch.dtype] | None:
    if isinstance(node, _Converted):
        return ("x", torch.int32) if isinstance(node, _Short) else None
    if node.op == "read" and isinstance(node.own[0], Table):
        dtype = node.own[0].tensor.dtype
        return (node.own[0].name, dtype) if dtype in (*NARROW, torch.int32) else None
    if node.op not in _COMPUTED:
        return None
    return _small(node.args[1:] if node.op == "where" else node.args)
