"""Polynomials with integer coefficients, as plain dictionaries: the arithmetic of sign proofs.

A SymPy sum is normalised each time it is built, in tens of microseconds; a proof asks for hundreds
of differences. Here an *atom* (a symbol, a floor division, a table of documents) is a small number,
a monomial a sorted tuple of them, and a polynomial maps monomials to coefficients, none of them 0.
"""

from __future__ import annotations

from typing import Any

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, int]

ONE: Monomial = ()


class Atoms:
    """Numbers the atoms of one structure, and reads SymPy expressions as polynomials in them."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._read: dict[Any, Polynomial] = {}
        self.expressions: list[Any] = []

    def number(self, atom: Any) -> int:
        found = self._numbers.get(atom)
        if found is None:
            found = self._numbers[atom] = len(self.expressions)
            self.expressions.append(atom)
        return found

    def read(self, expression: Any) -> Polynomial:
        """The polynomial of a SymPy expression; remembered, so never to be changed in place."""
        found = self._read.get(expression)
        if found is None:
            found = self._read[expression] = self._polynomial(expression)
        return found

    def _polynomial(self, expression: Any) -> Polynomial:
        if expression.is_Integer:
            return constant(int(expression))
        if expression.is_Add:
            total: Polynomial = {}
            for term in expression.args:
                add_to(total, self.read(term))
            return total
        if expression.is_Mul:
            result = constant(1)
            for factor in expression.args:
                result = product(result, self.read(factor))
            return result
        if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
            result = constant(1)
            for _ in range(int(expression.exp)):
                result = product(result, self.read(expression.base))
            return result
        return {(self.number(expression),): 1}


def constant(value: int) -> Polynomial:
    return {ONE: value} if value else {}


def add_to(total: Polynomial, other: Polynomial, scale: int = 1) -> None:
    """Add `scale * other` to `total`, in place."""
    for monomial, coefficient in other.items():
        found = total.get(monomial, 0) + scale * coefficient
        if found:
            total[monomial] = found
        else:
            del total[monomial]


def product(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for a, m in left.items():
        for b, n in right.items():
            monomial = tuple(sorted(a + b)) if a and b else a or b
            found = result.get(monomial, 0) + m * n
            if found:
                result[monomial] = found
            else:
                del result[monomial]
    return result


def combined(parts: list[tuple[int, Polynomial]]) -> Polynomial:
    """The sum of polynomials, each times a number."""
    total: Polynomial = {}
    for scale, part in parts:
        add_to(total, part, scale)
    return total
