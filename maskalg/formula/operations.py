"""The operations of integers, a row an operation: what it gives, and how each language has it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

Interval = tuple[int, int]
_Limits: TypeAlias = Callable[[list[Interval]], Interval | None]
_OfTensors: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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
    return min(corners), max(corners)


def _mod(parts: list[Interval]) -> Interval | None:
    (a, b), (c, d) = parts
    if c < 1:
        return None
    return (a, b) if a >= 0 and b < c else (0, d - 1)


def _least(parts: list[Interval]) -> Interval:
    return min(low for low, _ in parts), min(high for _, high in parts)


def _most(parts: list[Interval]) -> Interval:
    return max(low for low, _ in parts), max(high for _, high in parts)


def _bitand(parts: list[Interval]) -> Interval | None:
    highs = [high for low, high in parts if low >= 0]
    return (0, min(highs)) if highs else None


@dataclass(frozen=True)
class Operation:
    """An operation of two integers and more, as every language has it.

    Attributes:
        value: what it means: the integer it gives of two others, whatever their size.
        limits: the least and the most it gives, by those of its arguments; None where its numbers
            are not bounded by theirs.
        evaluated: by torch, of two tensors; None of divisions, which look at their divisor.
        long: its function in `kernels/long_integers.py`, of numbers past 64 bits.
        sign: what stands between its arguments; None where it is a function.
        latex: likewise, of an operation of bits. All languages write its sign alike, so that
            nothing else is said of it; of the others each printer has a rule.
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
    # Divisors are at least 1, but in a branch that is not taken.
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
