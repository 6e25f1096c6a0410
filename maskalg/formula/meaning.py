"""The meaning of formulas, shared by evaluation, certificates and the verifier.

Integers may have any size, and no operation wraps; `OPERATIONS` has a row for each operation. Only
the inputs of a formula have a width: an entry has the dtype of its table, a number is at most
`INT32_MAX` from 0, and a real number that becomes an integer is clamped to `MOST_WHOLE`. A divisor
below 1 counts as 1, and an index of a table is clamped to its ends.

Real numbers are float32. Each operation on them rounds once, to the nearest number, in the order of
`nodes.in_order`. So does the conversion of an integer, except that one which may exceed 64 bits
becomes a double first. The minimum and the maximum of 0 and -0 may be either of them. `laws.py` has
the laws of integers that linear arithmetic uses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import copysign, inf
from typing import Final, TypeAlias

import torch

from .functions import FUNCTIONS

Interval = tuple[int, int]
_Limits: TypeAlias = Callable[[list[Interval]], Interval | None]
_OfTensors: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# Limits may be lengths that torch.compile or torch.export leaves open. `sym_min` and `sym_max` do
# not ask which is smaller, for the answer would bind the graph to it.


def _add(parts: list[Interval]) -> Interval:
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _mul(parts: list[Interval]) -> Interval:
    low, high = 1, 1
    for a, b in parts:
        corners = (low * a, low * b, high * a, high * b)
        low, high = min(corners), max(corners)
    return low, high


def _floordiv(parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts
    if c < 1:
        return None
    corners = (a // c, a // d, b // c, b // d)
    return reduce(torch.sym_min, corners), reduce(torch.sym_max, corners)


def _mod(parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts
    if c < 1:
        return None
    if a < 0:
        return 0, d - 1
    kept = type(b) is int and b < c
    return a if kept else 0, torch.sym_min(b, d - 1)


def _least(parts: list[Interval]) -> Interval:
    low, high = (reduce(torch.sym_min, ends) for ends in zip(*parts, strict=True))
    return low, high


def _most(parts: list[Interval]) -> Interval:
    low, high = (reduce(torch.sym_max, ends) for ends in zip(*parts, strict=True))
    return low, high


def _bitand(parts: list[Interval]) -> Interval | None:
    highs = [high for low, high in parts if low >= 0]
    return (0, reduce(torch.sym_min, highs)) if highs else None


@dataclass(frozen=True)
class Operation:
    """An operation of two or more integers, in every language.

    Attributes:
        value: its meaning: the result for two integers of any size.
        limits: the least and the largest result, from the limits of the arguments; None if these
            give no limits.
        evaluated: the operation in torch, of two tensors; None for divisions, which first clamp
            their divisor.
        long: its function in `kernels/long_integers.py`, for integers past 64 bits.
        sign: the sign between its arguments; None for a function.
        latex: the sign in LaTeX, for operations of bits only. All languages write these with the
            same `sign`; for the other operations each printer has a rule.
    """

    value: Callable[[int, int], int]
    limits: _Limits | None
    evaluated: _OfTensors | None
    long: str
    sign: str | None = None
    latex: str | None = None


OPERATIONS: Final = {
    "add": Operation(operator.add, _add, torch.add, "long_add", "+"),
    "mul": Operation(operator.mul, _mul, torch.mul, "long_multiply", "*"),
    # Divisors are at least 1, except in a branch that is not taken.
    "floordiv": Operation(lambda x, c: x // max(c, 1), _floordiv, None, "long_floor_div", "//"),
    "mod": Operation(lambda x, c: x % max(c, 1), _mod, None, "long_floor_mod", "%"),
    "min": Operation(min, _least, torch.minimum, "long_minimum"),
    "max": Operation(max, _most, torch.maximum, "long_maximum"),
    "bitand": Operation(operator.and_, _bitand, torch.bitwise_and, "long_and", "&", r"\&"),
    "bitor": Operation(operator.or_, None, torch.bitwise_or, "long_or", "|", "|"),
    "bitxor": Operation(operator.xor, None, torch.bitwise_xor, "long_xor", "^", r"\oplus"),
}
"""The operations by their names in formulas."""

RULES: Final = {name: row.limits for name, row in OPERATIONS.items() if row.limits is not None}

BITWISE: Final = {name: row for name, row in OPERATIONS.items() if row.latex is not None}
"""The operations of bits."""

MOST_WHOLE: Final = 2.0**31 - 128
"""The largest integer of 32 bits that float32 holds."""

_MOST_OF_FLOAT32: Final = torch.finfo(torch.float32).max


def whole(numbers: torch.Tensor) -> torch.Tensor:
    """The integer part of real numbers; past all positions for infinite ones, 0 for NaN."""
    return numbers.clamp(-MOST_WHOLE, MOST_WHOLE).nan_to_num().to(torch.int64)


def as_float32(number: float) -> float:
    """A Python number, for float32: infinite if it is beyond the range of float32."""
    return copysign(inf, number) if abs(number) > _MOST_OF_FLOAT32 else number


def ends_of_entries(dtype: torch.dtype) -> Interval:
    """The least and the largest entry of a table of integers or Booleans."""
    if dtype == torch.bool:
        return 0, 1
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


COMPARISONS: Final = {"ge": torch.ge, "gt": torch.gt, "eq": torch.eq}

REALS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "negative": torch.negative,
    "multiply": torch.multiply,
    "divide": torch.true_divide,
    "power": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "greater or equal": COMPARISONS["ge"],
    "greater": COMPARISONS["gt"],
    "equal": COMPARISONS["eq"],
    **{name: function.evaluated for name, function in FUNCTIONS.items()},
}
"""The operations on real numbers. With NaN the result is NaN, and comparisons are false."""
