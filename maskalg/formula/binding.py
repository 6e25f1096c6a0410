"""A value that takes the place of another in an expression: checked as the first one was."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from .. import errors
from . import messages
from .entries import as_tensor, real_entries
from .node import Node
from .order import check
from .parameters import INT32_MAX, INTEGERS, Scalar, Table, no_nan, plain_number


def rebound(
    name: str, old: Scalar | Table, value: object, formulas: Iterable[Node]
) -> Scalar | Table:
    """A parameter of `formulas` with another value of its kind; raises what `bind` raises."""
    if isinstance(old, Scalar):
        return _scalar(name, old, plain_number(value))
    new = _table(name, old, value)
    _check_broadcast(name, old, new, formulas)
    return new


def _scalar(name: str, old: Scalar, value: object) -> Scalar:
    kinds = INTEGERS if old.kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise messages.bound_type(name, value, "int" if old.kind == "int" else "a number")
    no_nan(f"bind({name}=…)", value)
    if old.positive and not 0 < value < math.inf:
        raise errors.not_positive("bind", name, value)
    if old.low is not None and value < old.low:
        raise errors.below("bind", name, value, old.low)
    if old.kind == "int" and abs(value) > INT32_MAX:
        raise errors.above_int32("bind", name, int(value))
    return old.with_value(value if old.kind == "int" else float(value))


def _table(name: str, old: Table, value: object) -> Table:
    """Entries go to the device of the tensor they replace, and are real where it is."""
    tensor = real_entries(value) if old.kind == "real" else as_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        raise messages.bound_type(name, value, "a tensor or its entries")
    new = old.with_tensor(tensor if tensor is value else tensor.to(old.tensor.device))
    if new.text != old.text:
        rank = old.tensor.ndim
        raise messages.bound_tensor(name, (old.kind, rank), (tensor.dtype, tensor.ndim))
    check(f"bind({name}=…)", name, tensor, old.order)
    return new


def _check_broadcast(name: str, old: Table, new: Table, formulas: Iterable[Node]) -> None:
    """A dimension read at one fixed entry, as a broadcast one is, must keep its size."""
    for formula in formulas:
        for node in formula.walk():
            if node.op != "read" or node.own[0] is not old:
                continue
            for axis, index in enumerate(node.args):
                if index.op == "const" and old.tensor.shape[axis] != new.tensor.shape[axis]:
                    wanted = f"{old.tensor.shape[axis]} entries along dimension {axis}"
                    raise errors.tensor_shape("bind", name, list(new.tensor.shape), wanted)
