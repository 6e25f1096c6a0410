"""Conditions over integers, of expressions of any kind that can be added and multiplied.

Expressions are polynomials of SymPy in certificates and terms in the verifier. Products of unknowns
count as unknowns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Linear:
    """A sum of unknowns with coefficients and a constant, for what does without SymPy."""

    terms: tuple[tuple[Any, int], ...]
    constant: int


@dataclass(frozen=True)
class NotNegative:
    """expression >= 0, an integer polynomial in the unknowns: of SymPy, or `Linear`."""

    expression: Any


@dataclass(frozen=True)
class All:
    """Every part holds; without parts, always."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any_:
    """Some part holds; without parts, never."""

    parts: tuple[Condition, ...]


Condition = NotNegative | All | Any_

NEVER: Final = Any_(())


def equal(left: Any, right: Any) -> Condition:
    return All((NotNegative(left - right), NotNegative(right - left)))


def negated(condition: Condition) -> Condition:
    """The contrary, again without negations: not (e >= 0) is -e - 1 >= 0 over the integers."""
    if isinstance(condition, NotNegative):
        return NotNegative(-condition.expression - 1)
    parts = tuple(negated(part) for part in condition.parts)
    return Any_(parts) if isinstance(condition, All) else All(parts)


def inequalities(condition: Condition) -> Iterable[Any]:
    """Every expression that a condition compares with zero."""
    if isinstance(condition, NotNegative):
        yield condition.expression
        return
    for part in condition.parts:
        yield from inequalities(part)


def certain(condition: Condition) -> Iterable[Any]:
    """The expressions that a condition says are >= 0 in any case."""
    if isinstance(condition, NotNegative):
        yield condition.expression
    elif isinstance(condition, All):
        for part in condition.parts:
            yield from certain(part)
