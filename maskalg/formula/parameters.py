"""Parameters of a formula: the values that are kept apart from its structure.

A `Scalar` or a `Table` is a leaf of a formula. Its *text* (name, kind, declared bound, rank)
belongs to the structure; its *value* does not. Two masks that differ in values alone share one
proof and one kernel. A `Slot` stands for either in a normal form, where values are gone.
"""

from __future__ import annotations

import math
import operator
from numbers import Integral, Real
from typing import Any, Final, Literal, cast

import torch

from ..errors import (
    MaskValueError,
    below,
    not_an_integer,
    sparse_table,
    table_dtype,
)

Kind = Literal["bool", "int", "real"]

Order = Literal["contiguous", "ascending"]
"""The order of entries along the last dimension of a table: equal entries lie next to each other
("contiguous"), or entries never descend ("ascending")."""

_DTYPES: Final = frozenset({
    torch.bool, torch.uint8, torch.uint16, torch.uint32,
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
})  # fmt: skip
"""Dtypes of tables, whose entries kernels read as signed integers or as real numbers."""

INT32_MAX: Final = 2**31 - 1

INTEGERS: Final = cast("tuple[type[int], ...]", (int, torch.SymInt))
"""Types of integers: under `torch.export` a length is a symbol, not an `int`."""


def plain_number(value: Any) -> Any:
    """A NumPy number as a Python number; anything else as it is."""
    if isinstance(value, (*INTEGERS, float)) or not isinstance(value, Real):
        return value
    return operator.index(value) if isinstance(value, Integral) else float(value)


def whole_number(call: str, name: str, value: Any, low: int) -> int:
    """`value`, an integer >= `low`, or the error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, INTEGERS):
        raise not_an_integer(call, name, value, low)
    if value < low:
        raise below(call, name, value, low)
    return value


def no_nan(call: str, value: float) -> None:
    """Refuse NaN: it equals nothing, so that no expression with it would equal itself."""
    if not torch.compiler.is_compiling() and isinstance(value, float) and math.isnan(value):
        raise MaskValueError(
            f"{call}: nan is no number. Write a finite one; to drop pairs use a mask: `mask + "
            "bias`."
        )


class Scalar:
    """A number with a name: a window, a chunk length, a shift.

    `low` is the declared lower bound that proofs may use; it is checked by the atom that binds it.
    A `positive` number is above 0 and finite: the atom and `bind` check it, no proof uses it.
    """

    __slots__ = ("kind", "low", "name", "positive", "text", "value")

    def __init__(
        self, name: str, value: int | float, low: int | None = None, positive: bool = False
    ) -> None:
        self.name = name
        self.value = value
        self.low = low
        self.positive = positive
        self.kind: Kind = "int" if isinstance(value, INTEGERS) else "real"
        self.text = f"${name}:{self.kind}" + ("" if low is None else f">={low}")

    def with_value(self, value: int | float) -> Scalar:
        return Scalar(self.name, value, self.low, self.positive)

    @property
    def identity(self) -> object:
        """Its identity in `==` and the hash of a mask: the number itself."""
        return self.value


class Table:
    """A tensor with a name, read at indices: document ids, lengths, slopes, a dense mask.

    `low` and `order` are declared: entries below `low` are read as `low`, and proofs and kernels
    rely on `order`, which `bind` and every evaluation check (`formula/entries.py`).
    """

    __slots__ = ("kind", "low", "name", "order", "tensor", "text")

    def __init__(
        self,
        name: str,
        tensor: torch.Tensor,
        low: int | None = None,
        order: Order | None = None,
    ) -> None:
        if tensor.layout != torch.strided:
            raise sparse_table(name, tensor.layout)
        if tensor.dtype not in _DTYPES:
            raise table_dtype(name, tensor.dtype)
        self.name = name
        self.tensor = tensor
        self.low = low
        self.order = order
        self.kind: Kind = kind_of(tensor.dtype)
        bound = "" if low is None else f">={low}"
        declared = "" if order is None else f"~{order}"
        self.text = f"@{name}:{self.kind}{tensor.ndim}{bound}{declared}"

    def with_tensor(self, tensor: torch.Tensor) -> Table:
        return Table(self.name, tensor, self.low, self.order)

    @property
    def identity(self) -> object:
        """Its identity in `==` and the hash of a mask: the tensor object, not its contents."""
        return id(self.tensor)


class Constant(Table):
    """A table computed from numbers alone, such as the buckets of T5's distances.

    Modules do not save it: it belongs to the expression, as numbers do.
    """

    __slots__ = ()

    @classmethod
    def beside(cls, name: str, tensor: torch.Tensor, other: torch.Tensor) -> Constant:
        """The table on the device of another tensor; where it is if that one has no entries yet."""
        return cls(name, tensor if other.is_meta else tensor.to(other.device))

    def with_tensor(self, tensor: torch.Tensor) -> Constant:
        return Constant(self.name, tensor, self.low, self.order)


class Slot:
    """The place of a parameter in a normal form: position `index` of the values bound to it."""

    __slots__ = ("index", "is_table", "kind", "low", "name", "ndim", "order", "text")

    def __init__(self, index: int, name: str, source: Scalar | Table) -> None:
        self.index = index
        self.name = name
        self.kind: Kind = source.kind
        self.low = source.low
        self.is_table = isinstance(source, Table)
        self.ndim = source.tensor.ndim if isinstance(source, Table) else 0
        self.order = source.order if isinstance(source, Table) else None
        # With what is declared: formulas that differ in it must not share proofs.
        self.text = f"#{index}{source.text}"

    @property
    def identity(self) -> object:
        return self.index


Parameter = Scalar | Table | Slot


def common_order(one: Parameter, other: Parameter) -> Order | None:
    """The declared order that two tables of ids share, or one table that is given twice has.

    Two tables must both ascend: then their documents follow one another in the same order.
    """
    orders = [None if isinstance(p, Scalar) else p.order for p in (one, other)]
    if one is other or orders == ["ascending", "ascending"]:
        return orders[0]
    return None


def kind_of(dtype: torch.dtype) -> Kind:
    """The kind of a table's entries."""
    if dtype == torch.bool:
        return "bool"
    return "real" if dtype.is_floating_point else "int"
