"""Sign proofs: is an integer expression never negative, for all values of its symbols?

Sound and incomplete. Every symbol is replaced by its declared lower bound plus something
non-negative; then a polynomial without a negative coefficient is non-negative. Floor divisions
and document tables are replaced by bounds of them, one at a time.

Expressions come from SymPy and are compared as plain polynomials, dictionaries with integer
coefficients. A SymPy sum is normalised each time it is built, in tens of microseconds; a proof asks
for hundreds of differences. Here an *atom* (a symbol, a floor division, a table of documents) is a
small number, a monomial a sorted tuple of them, and a polynomial maps monomials to coefficients,
none of them 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sympy as sp

from .symbols import FloorDiv, Step, Symbols, ceil_div, expanded, holds, lower, q0, q1, upper

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, int]

ONE: Monomial = ()


class Atoms:
    """Numbers the atoms of one structure; reads SymPy expressions as polynomials in them."""

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


_DEPTH: Final = 3

STEP_BUDGET: Final = 1000

Key = frozenset[tuple[Monomial, int]]


class OverBudget(Exception):
    """More clauses or sign proofs than the budget; the next rung of the ladder decides the mask."""


class Signs:
    """Sign proofs under the bounds declared for the symbols of one structure.

    Each question may raise `OverBudget`: `STEP_BUDGET` steps were made for this side of the proof.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._atoms = Atoms()
        self._known: dict[tuple[Key, int], bool] = {}
        self._ordered: dict[tuple[Any, Any], bool] = {}
        self._shifted: dict[Monomial, Polynomial] = {ONE: constant(1)}
        self.restart()

    def restart(self) -> None:
        """Count steps from zero, for the next side of a proof."""
        self._steps = 0.0

    def nonnegative(self, expression: Any) -> bool:
        """True only if `expression >= 0` for all values within the declared bounds."""
        return self._proved(self._atoms.read(expression))

    def positive(self, expression: Any) -> bool:
        """True only if always `expression >= 1`."""
        return self._proved(combined([(1, self._atoms.read(expression)), (-1, constant(1))]))

    def negative(self, expression: Any) -> bool:
        """True only if always `expression <= -1`."""
        return self._proved(combined([(-1, self._atoms.read(expression)), (-1, constant(1))]))

    def ordered(self, low: Any, high: Any) -> bool:
        """True only if always `low <= high`."""
        found = self._ordered.get((low, high))
        if found is None:
            difference = combined([(1, self._atoms.read(high)), (-1, self._atoms.read(low))])
            found = self._ordered[low, high] = self._proved(difference)
        return found

    def opposed(self, left: Any, right: Any) -> bool:
        """True only if always `left + right <= -1`, so that never both are >= 0."""
        read = self._atoms.read
        return self._proved(combined([(-1, read(left)), (-1, read(right)), (-1, constant(1))]))

    def place(self, expression: Any) -> list[tuple[Monomial, int]]:
        """A sort key of an expression, the same in every process, and cheaper than its text."""
        return sorted(self._atoms.read(expression).items())

    def spend(self, steps: float) -> None:
        """Count work against the budget; a comparison of clauses costs a hundredth of a proof."""
        self._steps += steps
        if self._steps > STEP_BUDGET:
            raise OverBudget(f"more than {STEP_BUDGET} steps of symbolic work")

    def _proved(self, polynomial: Polynomial, depth: int = _DEPTH) -> bool:
        """Whether the polynomial is non-negative, after at most `depth` relaxations."""
        if not polynomial.keys() - {ONE}:
            return polynomial.get(ONE, 0) >= 0
        key = frozenset(polynomial.items()), depth
        found = self._known.get(key)
        if found is None:
            self.spend(1)
            found = self._known[key] = self._no_negative_coefficient(polynomial) or (
                depth > 0
                and any(self._proved(less, depth - 1) for less in self._relaxations(polynomial))
            )
        return found

    def _no_negative_coefficient(self, polynomial: Polynomial) -> bool:
        """Whether no coefficient is negative once symbols are bounds plus non-negative excesses."""
        total: Polynomial = {}
        for monomial, coefficient in polynomial.items():
            add_to(total, self._shift(monomial), coefficient)
        return all(coefficient > 0 for coefficient in total.values()) and all(
            self._is_nonnegative(atom) for atom in {atom for monomial in total for atom in monomial}
        )

    def _shift(self, monomial: Monomial) -> Polynomial:
        """The monomial in excesses: the number of a symbol now stands for its excess."""
        found = self._shifted.get(monomial)
        if found is None:
            found = product(self._shift(monomial[1:]), self._excess(monomial[0]))
            self._shifted[monomial] = found
        return found

    def _excess(self, number: int) -> Polynomial:
        atom = self._atoms.expressions[number]
        if atom is q1:
            return combined([(1, {(number,): 1}), (1, self._excess(self._atoms.number(q0)))])
        return combined([(1, {(number,): 1}), (1, constant(self._symbols.lows.get(atom, 0)))])

    def _is_nonnegative(self, number: int) -> bool:
        """Whether an atom, or the excess of a symbol over its bound, is never negative."""
        atom = self._atoms.expressions[number]
        if isinstance(atom, FloorDiv):
            return self.nonnegative(atom.args[0])
        if isinstance(atom, Step):
            return atom.table in ("first", "start")
        return atom is q1 or atom in self._symbols.lows

    def _relaxations(self, polynomial: Polynomial) -> Iterator[Polynomial]:
        """Smaller polynomials, each with one function replaced by a bound of it."""
        holding: list[tuple[Monomial, int]] = []
        for monomial in polynomial:
            functions = [n for n in monomial if self._is_function(n)]
            if len(functions) == 1:
                holding.append((monomial, functions[0]))
        for monomial, function in holding:
            yield from self._relaxed(polynomial, monomial, function)
        alone = [monomial for monomial, _ in holding if len(monomial) == 1]
        for i, left in enumerate(alone):
            for right in alone[i + 1 :]:
                if self._cancel(polynomial, left, right):
                    yield {m: c for m, c in polynomial.items() if m not in (left, right)}

    def _is_function(self, number: int) -> bool:
        return isinstance(self._atoms.expressions[number], (FloorDiv, Step))

    def _relaxed(
        self, polynomial: Polynomial, monomial: Monomial, number: int
    ) -> Iterator[Polynomial]:
        """The polynomial with a multiple of a function in `monomial` replaced by a bound of it."""
        coefficient, function = polynomial[monomial], self._atoms.expressions[number]
        read = self._atoms.read
        if isinstance(function, Step):
            above = function.table in ("last", "end")
            family = function.family
            own = self._symbols.own_ids(family) and family not in self._symbols.clamped
            if len(monomial) > 1 or not own or above != (coefficient > 0):
                return
            bound, scale = read(function.position), coefficient
        else:
            # x - c + 1 <= c * floor(x / c) <= x: the term must be a multiple of c.
            x, c = read(function.args[0]), read(function.args[1])
            if len(c) != 1:
                return
            ((divisor, size),) = c.items()
            if tuple(n for n in monomial if n != number) != divisor or coefficient % size:
                return
            scale = coefficient // size
            bound = combined([(1, x), (-1, c), (1, constant(1))]) if scale > 0 else x
        rest = {m: n for m, n in polynomial.items() if m != monomial}
        add_to(rest, bound, scale)
        yield rest

    def _cancel(self, polynomial: Polynomial, left: Monomial, right: Monomial) -> bool:
        """Whether the two terms add to >= 0: one monotone function at two points in order."""
        f, g = self._atoms.expressions[left[0]], self._atoms.expressions[right[0]]
        a = polynomial[left]
        if a + polynomial[right] != 0 or f.func is not g.func:
            return False
        if isinstance(f, FloorDiv):
            same, x, y = f.args[1] == g.args[1], f.args[0], g.args[0]
        else:
            same, x, y = f.args[:3] == g.args[:3], f.position, g.position
        return bool(same) and (self.ordered(y, x) if a > 0 else self.ordered(x, y))


Bound = tuple[str, Any]  # ("low" or "high", expression)


def isolate(expression: Any, variable: Any, signs: Signs) -> Bound | None:
    """`expression >= 0` as `variable >= low` or `variable <= high`, or None."""
    terms = sp.Add.make_args(expanded(expression))
    inside = [term for term in terms if holds(term, variable)]
    if len(inside) != 1:
        return None
    rest = sp.Add(*[term for term in terms if term is not inside[0]])
    factors = sp.Mul.make_args(inside[0])
    holding = [factor for factor in factors if holds(factor, variable)]
    if len(holding) != 1:
        return None
    function = holding[0]
    scale = sp.Mul(*[factor for factor in factors if factor is not function])
    above = signs.positive(scale)
    if not above and not signs.positive(-scale):
        return None
    n = ceil_div(-rest, scale) if above else FloorDiv(rest, -scale)
    if function == variable:
        return "low" if above else "high", expanded(n)
    if not isinstance(function, (FloorDiv, Step)):
        return None
    x, bound = lower(function, n) if above else upper(function, n)
    if holds(bound, variable):
        return None
    return isolate(x - bound if above else bound - x, variable, signs)
