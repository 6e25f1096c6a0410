"""Integers of less than 64 bits, with which torch computes in as few: where they would wrap."""

from __future__ import annotations

from typing import Final, cast

import torch

from ...errors import MaskTypeError
from ...formula.nodes import Node
from ...formula.parameters import Table
from .. import messages

NARROW: Final = (torch.uint8, torch.int8, torch.int16, torch.uint16)


class _Converted(Node):
    """Entries that the function made integers of 32 or 64 bits: equal to what they were."""

    __slots__ = ()


class _Short(_Converted):
    """A formula that the function made an integer of 32 bits."""

    __slots__ = ()


def of_32_bits(node: Node) -> Node:
    """An integer formula after `x.int()`."""
    return (
        node if node.op == "const" else _Short(node.op, node.kind, node.args, node.data, node.own)
    )


def converted(node: Node) -> Node:
    """The formula after `x.int()` or `x.long()`: its entries do not wrap any more."""
    if _narrow(node) is None and not _has_32_bits(node):
        return node
    return _Converted(node.op, node.kind, node.args, node.data, node.own)


def refuse_wrapping(sign: str, *operands: Node) -> None:
    """Entries of 8 or 16 bits wrap where torch computes with them, and with numbers, alone.

    Those of 32 bits wrap with numbers that have more.
    """
    if any(node.kind == "real" for node in operands):
        return
    large = [n for n in operands if n.op == "const" and abs(cast(int, n.data)) >= 2**31]
    if large and any(map(_has_32_bits, operands)):
        raise MaskTypeError(
            f"`{sign}` of an integer of 32 bits and {cast(int, large[0].data)} wraps in torch, "
            f"which no formula does. Write x.long() before it, {messages.OPAQUE}."
        )
    tables = [_narrow(node) for node in operands if node.op not in ("const", "scalar")]
    if tables and all(table is not None for table in tables):
        raise messages.traced_narrow(sign, *next(table for table in tables if table is not None))


def dtype_of(node: Node) -> torch.dtype:
    """The dtype torch would hold a value in, as far as conversions to it tell."""
    if node.kind == "bool":
        return torch.bool
    if node.kind == "int":
        found = _narrow(node)
        return torch.int64 if found is None else found[1]
    if "score" in node.ops():
        return torch.float32
    tables = [part.own[0] for part in node.walk() if part.op == "read" and part.kind == "real"]
    dtypes = [table.tensor.dtype for table in tables if isinstance(table, Table)]
    return max(dtypes, key=lambda dtype: dtype.itemsize, default=torch.float32)


def _has_32_bits(node: Node) -> bool:
    """Whether torch holds a formula in 32 bits, as far as conversions and tensors tell."""
    if isinstance(node, _Converted) or node.op == "read":
        table = None if isinstance(node, _Converted) else node.own[0]
        entries = isinstance(table, Table) and table.tensor.dtype == torch.int32
        return entries or isinstance(node, _Short)
    if node.op not in ("add", "mul", "min", "max", "where", "floordiv", "mod"):
        return False
    args = node.args[1:] if node.op == "where" else node.args
    found = [_has_32_bits(arg) for arg in args if arg.op not in ("const", "scalar")]
    return bool(found) and all(found)


def _narrow(node: Node) -> tuple[str, torch.dtype] | None:
    """The table of small integers that a formula is an entry of."""
    if isinstance(node, _Converted):
        return None
    if node.op == "read" and isinstance(node.own[0], Table):
        dtype = node.own[0].tensor.dtype
        return (node.own[0].name, dtype) if dtype in NARROW else None
    if node.op not in ("where", "min", "max"):
        return None
    chosen = node.args[1:] if node.op == "where" else node.args
    found = [_narrow(arg) for arg in chosen if arg.op not in ("const", "scalar")]
    return found[0] if found and None not in found else None
