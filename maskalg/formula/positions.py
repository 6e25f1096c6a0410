"""Positions of queries and keys in place of their row numbers: the arguments of `at`, `shift`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import cast

import torch

from .. import errors
from . import nodes
from .entries import Entries, as_tensor, integers
from .nodes import Node
from .parameters import INT32_MAX, INTEGERS, Scalar, Table, plain_number


class IndexFormula:
    """An integer or a real number as a function of batch, head, query and key index."""

    __slots__ = ("node",)
    node: Node


Position = IndexFormula | Entries | int
Shift = int | Entries


def position(name: str, value: object) -> Node:
    """Where a row of queries (`name` is "q") or of keys ("kv") lies, as a formula."""
    call = f"at({name}=…)"
    value = plain_number(value)
    if isinstance(value, IndexFormula):
        if value.node.kind != "int":
            raise not_a_position(call, "a real number")
        return value.node
    if isinstance(value, INTEGERS) and not isinstance(value, bool):
        if value < 0:
            raise errors.below(call, name, value, 0)
        if value > INT32_MAX:
            raise errors.above_int32(call, name, value)
        return nodes.scalar(Scalar(f"{name}_position", value, 0))
    if not isinstance(as_tensor(value), torch.Tensor):
        raise not_a_position(call, type(value).__name__)
    tensor = integers(call, name, value)
    if tensor.ndim > 2:
        wanted = "[], [length] or [batch, length]"
        raise errors.tensor_shape(call, name, list(tensor.shape), wanted)
    row = (nodes.BATCH, Node("index", "int", data=f"{name}_idx"))[2 - tensor.ndim :]
    return nodes.read(Table(f"{name}_positions", tensor), *row)


def offset(name: str, move: Shift) -> Node:
    """The offset that `shift` adds to the index of queries ("q") or of keys ("kv")."""
    call = f"shift({name}=…)"
    if isinstance(move, INTEGERS) and not isinstance(move, bool):
        if abs(move) > INT32_MAX:
            raise errors.above_int32(call, name, move)
        return nodes.scalar(Scalar(f"{name}_shift", move))
    if not isinstance(as_tensor(move), torch.Tensor):
        raise errors.not_an_integer(call, name, move, -INT32_MAX)
    tensor = integers(call, name, move)
    table = Table(f"{name}_shift", tensor)
    if tensor.ndim == 0:
        return nodes.read(table)
    if tensor.ndim == 1:
        return nodes.read(table, nodes.BATCH)
    raise errors.tensor_shape(call, name, list(tensor.shape), "[] or [batch]")


def is_zero(move: Shift) -> bool:
    """Whether a shift is certainly 0; comparing a symbolic number would fix its range."""
    if type(move) is not int or not torch.compiler.is_compiling():
        return type(move) is int and move == 0
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(move == 0)


def moved(node: Node, places: dict[str, Node]) -> Node:
    """The formula with "q_idx" and "kv_idx" replaced by these formulas, at once."""

    def replace(part: Node) -> Node | None:
        if part.op == "index":
            return places.get(cast(str, part.data))
        return part if part.indices().isdisjoint(places) else None

    return nodes.substitute(node, replace)


def never_negative(node: Node) -> bool:
    """Whether an integer formula is >= 0 for all values, as far as `least` can tell."""
    low = least(node, lambda leaf: leaf.own[0].low if leaf.op == "scalar" else None)
    return low is not None and low >= 0


def least(node: Node, known: Callable[[Node], int | None]) -> int | None:
    """A lower bound of an integer formula, or None; `known` gives those of numbers and entries."""
    op = node.op
    if op in ("index", "extent", "mod"):  # divisors are at least 1
        return 0
    if op == "const":
        return cast(int, node.data) if node.kind == "int" else None
    if op in ("scalar", "read"):
        return known(node)
    if op == "floordiv":
        low = least(node.args[0], known)
        return None if low is None or low < 0 else 0
    lows = [least(arg, known) for arg in (node.args[1:] if op == "where" else node.args)]
    bounds = [low for low in lows if low is not None]
    if op == "max":
        # Not max(…, default=None), which torch.compile does not follow (torch 2.13).
        return max(bounds) if bounds else None
    if op == "bitand":
        return 0 if any(low >= 0 for low in bounds) else None
    if len(bounds) < len(lows):
        return None
    if op == "add":
        return sum(bounds)
    if op in ("min", "where"):
        return min(bounds)
    if op in ("mul", "bitor", "bitxor") and min(bounds) >= 0:
        return prod(bounds) if op == "mul" else 0
    return None


def not_a_position(call: str, found: str) -> errors.MaskTypeError:
    return errors.MaskTypeError(
        f"{call}: positions are integers: an index expression such as kv_idx // 16, an integer "
        f"tensor [length] or [batch, length], or one integer >= 0. Got {found}. A table is read at "
        "indices: table(x)[kv_idx]."
    )
