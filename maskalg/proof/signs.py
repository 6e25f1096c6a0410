"""Sign proofs: is an integer expression never negative, whatever its symbols are?

Sound and incomplete. Every symbol is replaced by its declared lower bound plus something
non-negative; then a polynomial without a negative coefficient is non-negative. Floor divisions
and document tables are relaxed by what is known of them, one at a time.
"""

from __future__ import annotations

import time
from typing import Any, Final

import sympy as sp

from .functions import FloorDiv, Step
from .symbols import Symbols, q0, q1

_DEPTH: Final = 3

STEP_BUDGET: Final = 1000
SECONDS_BUDGET: Final = 2.0  # of this thread's processor time, which other programs do not change


class OverBudget(Exception):
    """More clauses or sign proofs than the budget; the caller takes the next rung of the ladder."""


class Signs:
    """Sign proofs under the bounds declared for the symbols of one structure."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._known: dict[Any, bool] = {}
        self._excess: dict[Any, Any] = {}
        self.restart()

    def restart(self) -> None:
        """Count steps and seconds from zero, for the next side of a proof."""
        self._steps = 0.0
        self._until = time.thread_time() + SECONDS_BUDGET

    def nonnegative(self, expression: Any) -> bool:
        """True only if `expression >= 0` for all values within the declared bounds.

        Raises:
            OverBudget: `STEP_BUDGET` steps were made for this side of the proof.
        """
        if expression.is_Integer:
            return bool(expression >= 0)
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = self._prove(sp.expand(expression), _DEPTH)
        return found

    def positive(self, expression: Any) -> bool:
        return self.nonnegative(expression - 1)

    def spend(self, steps: float) -> None:
        """Count work against the budget; a comparison of clauses costs a hundredth of a proof."""
        self._steps += steps
        if self._steps > STEP_BUDGET:
            raise OverBudget(f"more than {STEP_BUDGET} sign proofs")
        if time.thread_time() > self._until:
            raise OverBudget(f"more than {SECONDS_BUDGET:.0f} seconds of symbolic work")

    def _prove(self, expression: Any, depth: int) -> bool:
        self.spend(1)
        if self._no_negative_coefficient(expression):
            return True
        if depth == 0:
            return False
        return any(
            self._prove(sp.expand(relaxed), depth - 1) for relaxed in self._relaxations(expression)
        )

    def _no_negative_coefficient(self, expression: Any) -> bool:
        shifted = sp.expand(expression.xreplace(self._shifts(expression)))
        return all(
            coefficient.is_Integer
            and coefficient >= 0
            and all(self._is_nonnegative_factor(factor) for factor in sp.Mul.make_args(monomial))
            for monomial, coefficient in shifted.as_coefficients_dict().items()
        )

    def _shifts(self, expression: Any) -> dict[Any, Any]:
        """Each bounded symbol as its bound plus a non-negative excess; q1 as q0 plus one."""
        shifts: dict[Any, Any] = {}
        for symbol in expression.free_symbols:
            if symbol is q1:
                shifts[symbol] = q0 + self._excess_of(q1)
            elif self._symbols.lows.get(symbol, 0) != 0:
                shifts[symbol] = self._symbols.lows[symbol] + self._excess_of(symbol)
        return shifts

    def _excess_of(self, symbol: Any) -> Any:
        if symbol not in self._excess:
            excess = sp.Dummy(symbol.name, integer=True)
            self._excess[symbol] = excess
            self._symbols.lows[excess] = 0
        return self._excess[symbol]

    def _is_nonnegative_factor(self, factor: Any) -> bool:
        if factor.is_Integer:
            return bool(factor >= 0)
        if factor.is_Symbol:
            return self._symbols.lows.get(factor, -1) >= 0
        if isinstance(factor, FloorDiv):
            return self.nonnegative(factor.args[0])
        if isinstance(factor, Step):
            return factor.table in ("first", "start")
        if factor.is_Pow:
            return self._is_nonnegative_factor(factor.base)
        return False

    def _relaxations(self, expression: Any) -> list[Any]:
        """Smaller expressions, each with one function replaced by a bound of it."""
        terms = sp.Add.make_args(expression)
        smaller: list[Any] = []
        for term in terms:
            smaller.extend(self._relaxed_term(expression, term))
        for i, left in enumerate(terms):
            for right in terms[i + 1 :]:
                if self._cancels(left, right):
                    smaller.append(expression - left - right)
        return smaller

    def _relaxed_term(self, expression: Any, term: Any) -> list[Any]:
        factors = sp.Mul.make_args(term)
        functions = [f for f in factors if isinstance(f, (FloorDiv, Step))]
        if len(functions) != 1:
            return []
        function = functions[0]
        coefficient = sp.Mul(*[f for f in factors if f is not function])
        if isinstance(function, FloorDiv):
            x, c = function.args
            scale = sp.cancel(coefficient / c)
            if not scale.is_Integer:
                return []
            bound = x - c + 1 if scale > 0 else x
            return [expression - term + scale * bound]
        if not coefficient.is_Integer or not self._symbols.own_ids(function.family):
            return []
        above = function.table in ("last", "end")
        if above != bool(coefficient > 0):
            return []
        return [expression - term + coefficient * function.position]

    def _cancels(self, left: Any, right: Any) -> bool:
        """Whether left + right >= 0: one monotone function at two points in order."""
        a, f = left.as_coeff_Mul()
        b, g = right.as_coeff_Mul()
        if a + b != 0 or f.func is not g.func or not isinstance(f, (FloorDiv, Step)):
            return False
        if isinstance(f, FloorDiv):
            same, x, y = f.args[1] == g.args[1], f.args[0], g.args[0]
        else:
            same, x, y = f.args[:3] == g.args[:3], f.position, g.position
        return bool(same) and self.nonnegative(x - y if a > 0 else y - x)
