"""Systems of linear inequalities over rational numbers, with inequalities switched on and off.

The dual simplex method in exact arithmetic, with Bland's rule, as solvers of theories use it
(Dutertre and de Moura, A Fast Linear-Arithmetic Solver for DPLL(T), 2006). It finds which
inequalities contradict each other. Nobody has to trust it, since SymPy confirms every contradiction
in `refutation`.

Whole numbers are `int`, others `Fraction`: most are whole, and an addition of fractions takes ten
times as long as one of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

Number = int | Fraction
Row = dict[int, Number]


class TooLarge(Exception):
    """More steps than the budget."""


class Simplex:
    """Inequalities `form >= least` over unknowns that are free; each has a number.

    Args:
        budget: how many pivots may be made in all.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._columns: dict[object, int] = {}
        self._forms: dict[frozenset[tuple[object, int]], int] = {}
        self._rows: dict[int, Row] = {}
        self._values: list[Number] = []
        self._least: dict[int, list[int]] = {}  # of the forms with an inequality that is on

    def form(self, coefficients: Mapping[object, int]) -> int:
        """The number of a linear form; one that was seen before keeps its number."""
        key = frozenset(coefficients.items())
        found = self._forms.get(key)
        if found is None:
            row: Row = {}
            for unknown, coefficient in coefficients.items():
                self._add(row, self._column(unknown), coefficient)
            found = self._forms[key] = len(self._values)
            self._values.append(_whole(sum([c * self._values[n] for n, c in row.items()])))
            self._rows[found] = row
        return found

    def require(self, form: int, least: int) -> None:
        """Switch `form >= least` on."""
        self._least.setdefault(form, []).append(least)
        if form not in self._rows and self._values[form] < least:
            self._move(form, least)

    def release(self, form: int, least: int) -> None:
        """Switch it off again."""
        self._least[form].remove(least)
        if not self._least[form]:
            del self._least[form]

    def level(self, form: int) -> Number:
        """The form in a solution, after `conflict` found none."""
        return self._values[form]

    def value(self, unknown: object) -> Number:
        """The unknown in the same solution."""
        column = self._columns.get(unknown)
        return 0 if column is None else self._values[column]

    def conflict(self) -> dict[tuple[int, int], Number] | None:
        """Active inequalities that have no common solution; None if all of them have one.

        Each has a weight; the inequalities times their weights add up to 0 > 0.

        Raises:
            TooLarge: the budget of pivots is spent.
        """
        while True:
            below = (n for n in self._least if n in self._rows and self._below(n))
            low = min(below, default=None)
            if low is None:
                return None
            row, least = self._rows[low], self._bound(low)
            assert least is not None
            partner = min((n for n in row if row[n] > 0 or self._above(n)), default=None)
            if partner is None:
                return {(low, least): 1} | {(n, max(self._least[n])): -row[n] for n in row}
            self._pivot(low, partner, least)

    def _column(self, unknown: object) -> int:
        if unknown not in self._columns:
            self._columns[unknown] = len(self._values)
            self._values.append(0)
        return self._columns[unknown]

    def _bound(self, number: int) -> int | None:
        return max(self._least.get(number, ()), default=None)

    def _below(self, number: int) -> bool:
        least = self._bound(number)
        return least is not None and self._values[number] < least

    def _above(self, number: int) -> bool:
        """Whether the value is above its least, so it may become smaller."""
        least = self._bound(number)
        return least is None or self._values[number] > least

    def _add(self, row: Row, number: int, scale: Number) -> None:
        """Add a multiple of a variable to a row, written in free variables."""
        own = self._rows.get(number)
        _add_to(row, {number: 1} if own is None else own, scale)

    def _move(self, number: int, value: Number) -> None:
        change = value - self._values[number]
        self._values[number] = value
        for n, row in self._rows.items():
            if number in row:
                self._values[n] = _whole(self._values[n] + row[number] * change)

    def _pivot(self, low: int, partner: int, value: Number) -> None:
        """Exchange a dependent variable for a free one, and give it the value."""
        self._left -= 1
        if self._left < 0:
            raise TooLarge
        row = self._rows[low]
        gap = _quotient(value - self._values[low], row[partner])
        self._move(partner, _whole(self._values[partner] + gap))
        del self._rows[low]
        scale = row.pop(partner)
        solved = {n: _quotient(-c, scale) for n, c in row.items()}
        solved[low] = _quotient(1, scale)
        for other in self._rows.values():
            share = other.pop(partner, None)
            if share is not None:
                _add_to(other, solved, share)
        self._rows[partner] = solved


def _add_to(row: Row, other: Row, scale: Number) -> None:
    for n, c in other.items():
        total = _whole(row.get(n, 0) + scale * c)
        if total:
            row[n] = total
        else:
            row.pop(n, None)


def _quotient(x: Number, y: Number) -> Number:
    return _whole(Fraction(x) / y)


def _whole(x: Number) -> Number:
    """The number, as an `int` where it is whole."""
    return x if type(x) is int or x.denominator != 1 else x.numerator
