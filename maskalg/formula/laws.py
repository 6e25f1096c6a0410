"""Conditions over integers, and what linear arithmetic knows of operations on them: for
certificates and for the verifier.

Expressions are of any kind that can be added and multiplied: polynomials of SymPy in certificates,
terms in the verifier. Products of unknowns count as unknowns of their own. A law is of a result,
which comes first, and of what it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """floor(x / c) for c >= 1: between 0 and x, or x and -1, whatever the product of both is."""
    natural = NotNegative(x)
    smaller, nearer = between(0, quotient, x), between(x, quotient, -1)
    return All((implied([natural], smaller), implied([negated(natural)], nearer)))


def _of_min(least: Any, *of: Any) -> Condition:
    gaps = [NotNegative(each - least) for each in of]
    return All((*gaps, Any_(tuple([NotNegative(least - each) for each in of]))))


def _of_max(most: Any, *of: Any) -> Condition:
    return _of_min(-most, *[-each for each in of])


def _of_mul(product: Any, *of: Any) -> Condition:
    """Its sign, and that it is no less than parts that are at least 1."""
    larger = [NotNegative(product - each) for each in of]
    return All((
        implied([NotNegative(each) for each in of], NotNegative(product)),
        implied([NotNegative(each - 1) for each in of], *larger),
    ))  # fmt: skip


def _of_bitand(found: Any, *of: Any) -> Condition:
    """Bits are only taken away."""
    return All(tuple([implied([NotNegative(each)], between(0, found, each)) for each in of]))


def _of_bitxor(found: Any, *of: Any) -> Condition:
    """Of two: 0 turns no bits and -1 all, as the sign of a number is, shifted down."""
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
"""By names in formulas. Sums are expressions themselves, and divisions have the laws above."""
