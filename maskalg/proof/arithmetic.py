"""Conditions over integers, and their refutation by SymPy's linear-arithmetic solver.

The solver computes over rational numbers: what it refutes has no integer solution either, what it
cannot refute may have none all the same. Products of unknowns become unknowns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

import sympy as sp

CONDITION_BUDGET: Final = 48


@dataclass(frozen=True)
class AtLeastZero:
    """expression >= 0, an integer polynomial in the unknowns."""

    expression: Any


@dataclass(frozen=True)
class All:
    """Every part holds; without parts, always."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Any_:
    """Some part holds; without parts, never."""

    parts: tuple[Condition, ...]


Condition = AtLeastZero | All | Any_

NEVER: Final = Any_(())


def equal(left: Any, right: Any) -> Condition:
    return All((AtLeastZero(left - right), AtLeastZero(right - left)))


def negated(condition: Condition) -> Condition:
    """The contrary, again without negations: not (e >= 0) is -e - 1 >= 0 over the integers."""
    if isinstance(condition, AtLeastZero):
        return AtLeastZero(-condition.expression - 1)
    parts = tuple(negated(part) for part in condition.parts)
    return Any_(parts) if isinstance(condition, All) else All(parts)


def inequalities(condition: Condition) -> Iterable[Any]:
    """Every expression that a condition compares with zero."""
    if isinstance(condition, AtLeastZero):
        yield condition.expression
        return
    for part in condition.parts:
        yield from inequalities(part)


def certain(condition: Condition) -> Iterable[Any]:
    """The expressions that a condition says are >= 0 in any case."""
    if isinstance(condition, AtLeastZero):
        yield condition.expression
    elif isinstance(condition, All):
        for part in condition.parts:
            yield from certain(part)


def refuted(conditions: Iterable[Condition]) -> bool:
    """True only if no integers satisfy all conditions."""
    whole = All(tuple(conditions))
    if sum(1 for _ in inequalities(whole)) > CONDITION_BUDGET:
        return False
    sentence = _sentence(whole, {})
    if sentence in (sp.true, sp.false):
        return bool(sentence is sp.false)
    return sp.satisfiable(sentence, use_lra_theory=True) is False


def _sentence(condition: Condition, products: dict[Any, Any]) -> Any:
    if isinstance(condition, AtLeastZero):
        return _relation(condition.expression, products)
    parts = [_sentence(part, products) for part in condition.parts]
    return sp.And(*parts) if isinstance(condition, All) else sp.Or(*parts)


def _relation(expression: Any, products: dict[Any, Any]) -> Any:
    """The inequality as tight as integers allow: 2x - 1 >= 0 is x - 1 >= 0."""
    terms = dict(sp.expand(expression).as_coefficients_dict())
    constant = int(terms.pop(sp.S.One, 0))
    if not terms:
        return sp.true if constant >= 0 else sp.false
    divisor = gcd(*(int(coefficient) for coefficient in terms.values()))
    linear = [
        coefficient / divisor * _unknown(monomial, products)
        for monomial, coefficient in terms.items()
    ]
    return sp.Ge(sp.Add(*linear), -(constant // divisor), evaluate=False)


def _unknown(monomial: Any, products: dict[Any, Any]) -> Any:
    if monomial not in products:
        products[monomial] = sp.Symbol(f"m{len(products)}", real=True)
    return products[monomial]
