"""Conditions over integers, and laws of integer operations for linear arithmetic: used by
certificates and by the verifier.

Expressions may have any type that adds and multiplies: polynomials of SymPy in certificates, terms
in the verifier. A product of unknowns counts as an unknown of its own. A law takes a result, then
the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Linear:
    """A sum of unknowns with coefficients and a constant, for code without SymPy."""

    terms: tuple[tuple[Any, int], ...]
    constant: int


@dataclass(frozen=True)
class NotNegative:
    """expression >= 0, for an integer polynomial in the unknowns: of SymPy, or `Linear`."""

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
    """The negation, without `not`: not (e >= 0) is -e - 1 >= 0 over the integers."""
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


def implied(premises: Sequence[Condition], *conclusions: Condition) -> Condition:
    """The conclusions hold where all premises do."""
    return Any_((*map(negated, premises), All(conclusions)))


def between(low: Any, x: Any, high: Any) -> Condition:
    """low <= x <= high."""
    return All((NotNegative(x - low), NotNegative(high - x)))


def divided(quotient: Any, rest: Any, x: Any, c: Any) -> Condition:
    """floor(x / c) and the remainder, for c >= 1."""
    return All((equal(x, c * quotient + rest), between(0, rest, c - 1)))


def sign_of_quotient(quotient: Any, x: Any) -> Condition:
    """floor(x / c) for c >= 1 and x >= 0."""
    return implied([NotNegative(x)], NotNegative(quotient))


def size_of_quotient(quotient: Any, x: Any) -> Condition:
    """floor(x / c) for c >= 1: from 0 to x if x >= 0, else from x to -1; c does not occur."""
    natural = NotNegative(x)
    smaller, nearer = between(0, quotient, x), between(x, quotient, -1)
    return All((implied([natural], smaller), implied([negated(natural)], nearer)))


def _of_min(least: Any, *of: Any) -> Condition:
    gaps = [NotNegative(each - least) for each in of]
    return All((*gaps, Any_(tuple([NotNegative(least - each) for each in of]))))


def _of_max(most: Any, *of: Any) -> Condition:
    return _of_min(-most, *[-each for each in of])


def _of_mul(product: Any, *of: Any) -> Condition:
    """A product of factors >= 0 is >= 0; a product of factors >= 1 is at least each factor."""
    larger = [NotNegative(product - each) for each in of]
    return All((
        implied([NotNegative(each) for each in of], NotNegative(product)),
        implied([NotNegative(each - 1) for each in of], *larger),
    ))  # fmt: skip


def _of_bitand(found: Any, *of: Any) -> Condition:
    """`x & y` only clears bits: it lies between 0 and x if x >= 0."""
    return All(tuple([implied([NotNegative(each)], between(0, found, each)) for each in of]))


def _of_bitxor(found: Any, *of: Any) -> Condition:
    """`0 ^ x` is x, and `-1 ^ x` is -1 - x: a sign shifted down, `x >> 63`, is 0 or -1."""
    return All(tuple([
        law
        for one, other in ((of, of[::-1]) if len(of) == 2 else ())
        for law in (
            implied([equal(one, 0)], equal(found, other)),
            implied([equal(one, -1)], equal(found, -1 - other)),
        )
    ]))  # fmt: skip


LAWS: Final[dict[str, Callable[..., Condition]]] = {
    "mul": _of_mul,
    "min": _of_min,
    "max": _of_max,
    "bitand": _of_bitand,
    "bitxor": _of_bitxor,
}
"""Laws by the names of operations in formulas. Sums need none, divisions have those above."""
