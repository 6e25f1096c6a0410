"""One query tile, all its keys: each clause becomes one interval of keys.

Fourier-Motzkin elimination of the query index over [q0, q1], with the exact inverses of
`functions` in place of division by a coefficient. Over the integers nothing is lost: a key is in
the interval if and only if some query of the tile keeps it, unless the clause says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from .functions import FloorDiv, Step, ceil_div, expanded, holds, lower, upper
from .literals import AtLeastZero, Clause, Congruence, IdPair, Opaque, in_order
from .signs import Signs
from .symbols import k, q, q0, q1


@dataclass
class KeyInterval:
    """Keys max(lows) <= k <= min(highs) of one clause, if all `guards` are >= 0.

    `exact` is False when a part of the clause had to be left out (the interval is then too wide,
    never too narrow); it holds only where the id tables in `documents` are in order.
    """

    lows: list[Any] = field(default_factory=list)
    highs: list[Any] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    congruence: Congruence | None = None
    box: Box | None = None
    documents: frozenset[IdPair] = frozenset()
    reasons: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not self.reasons


@dataclass
class Box:
    """Bounds on q, on k and on q - k: where a congruence can be decided tile by tile."""

    q_lows: list[Any] = field(default_factory=list)
    q_highs: list[Any] = field(default_factory=list)
    k_lows: list[Any] = field(default_factory=list)
    k_highs: list[Any] = field(default_factory=list)
    d_lows: list[Any] = field(default_factory=list)
    d_highs: list[Any] = field(default_factory=list)


Bound = tuple[str, Any]  # ("low" or "high", expression)


class Projection:
    """Eliminates the query index from the clauses of one structure."""

    def __init__(self, signs: Signs) -> None:
        self._signs = signs

    def interval(self, clause: Clause) -> KeyInterval | None:
        """The keys some query in [q0, q1] keeps by this clause; None when there are none."""
        found = KeyInterval()
        q_lows, q_highs = [q0], [q1]
        for literal in in_order(clause, self._signs):
            if isinstance(literal, Opaque):
                found.reasons.append(literal.why)
            elif isinstance(literal, Congruence):
                self._keep_congruence(found, literal)
            elif not self._place(found, literal, q_lows, q_highs):
                return None
        for low in q_lows:
            for high in q_highs:
                if not self._condition(found, high - low):
                    return None
        if found.congruence is not None:
            found.box = self._box(clause)
            if found.box is None:
                found.reasons.append("a remainder of q - k beside a condition on other terms")
        found.lows = self._extreme(found.lows, largest=True)
        found.highs = self._extreme(found.highs, largest=False)
        return found

    def _place(
        self, found: KeyInterval, literal: AtLeastZero, q_lows: list[Any], q_highs: list[Any]
    ) -> bool:
        """Put a literal where it bounds; False when the clause cannot be satisfied."""
        found.documents |= literal.documents
        if not holds(literal.expression, q):
            return self._condition(found, literal.expression)
        bound = self._isolate(literal.expression, q)
        if bound is None:
            found.reasons.append(f"{literal.expression} >= 0 holds the query index twice")
            return True
        (q_lows if bound[0] == "low" else q_highs).append(bound[1])
        return True

    def _condition(self, found: KeyInterval, expression: Any) -> bool:
        """Add `expression >= 0`, free of q, to the interval; False when it never holds."""
        expression = expanded(expression)
        if self._signs.nonnegative(expression):
            return True
        if self._signs.negative(expression):
            return False
        if not holds(expression, k):
            found.guards.append(expression)
            return True
        bound = self._isolate(expression, k)
        if bound is None:
            found.reasons.append(f"{expression} >= 0 holds the key index twice")
        else:
            (found.lows if bound[0] == "low" else found.highs).append(bound[1])
        return True

    def _isolate(self, expression: Any, variable: Any) -> Bound | None:
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
        scale = sp.Mul(*[factor for factor in factors if factor is not holding[0]])
        if self._signs.positive(scale):
            return self._at_least(holding[0], ceil_div(-rest, scale), variable)
        if self._signs.positive(-scale):
            return self._at_most(holding[0], FloorDiv(rest, -scale), variable)
        return None

    def _at_least(self, function: Any, n: Any, variable: Any) -> Bound | None:
        if function == variable:
            return "low", expanded(n)
        if not isinstance(function, (FloorDiv, Step)):
            return None
        x, bound = lower(function, n)
        return self._isolate(x - bound, variable) if not holds(bound, variable) else None

    def _at_most(self, function: Any, n: Any, variable: Any) -> Bound | None:
        if function == variable:
            return "high", expanded(n)
        if not isinstance(function, (FloorDiv, Step)):
            return None
        x, bound = upper(function, n)
        return self._isolate(bound - x, variable) if not holds(bound, variable) else None

    def _extreme(self, candidates: list[Any], largest: bool) -> list[Any]:
        """Without the candidates that another one always exceeds (or stays below)."""
        kept: list[Any] = []
        for candidate in dict.fromkeys(candidates):
            if any(self._beats(other, candidate, largest) for other in kept):
                continue
            kept = [other for other in kept if not self._beats(candidate, other, largest)]
            kept.append(candidate)
        return sorted(kept, key=str) if len(kept) > 1 else kept

    def _beats(self, left: Any, right: Any, largest: bool) -> bool:
        return self._signs.ordered(right, left) if largest else self._signs.ordered(left, right)

    def _keep_congruence(self, found: KeyInterval, literal: Congruence) -> None:
        if found.congruence is None:
            found.congruence = literal
        else:
            found.reasons.append("two remainders of q - k in one clause")

    def _box(self, clause: Clause) -> Box | None:
        """The clause as bounds on q, k and q - k, or None where it says more."""
        box = Box()
        for literal in in_order(clause, self._signs):
            if not isinstance(literal, AtLeastZero):
                continue
            expression = literal.expression
            if not self._bound_box(box, expression):
                return None
        return box

    def _bound_box(self, box: Box, expression: Any) -> bool:
        q_factor, k_factor = expression.coeff(q), expression.coeff(k)
        rest = expanded(expression - q_factor * q - k_factor * k)
        if rest.has(q, k):
            bound_q = None if holds(expression, k) else self._isolate(expression, q)
            bound_k = None if holds(expression, q) else self._isolate(expression, k)
        elif q_factor == -k_factor and q_factor in (1, -1):
            if q_factor == 1:
                box.d_lows.append(-rest)
            else:
                box.d_highs.append(rest)
            return True
        else:
            bound_q = self._isolate(expression, q) if k_factor == 0 else None
            bound_k = self._isolate(expression, k) if q_factor == 0 else None
        if bound_q is not None:
            (box.q_lows if bound_q[0] == "low" else box.q_highs).append(bound_q[1])
            return True
        if bound_k is not None:
            (box.k_lows if bound_k[0] == "low" else box.k_highs).append(bound_k[1])
            return True
        return False
