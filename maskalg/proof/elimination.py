"""A proof by elimination: the clauses of a mask, and for each the keys that some query keeps.

There are two sides: kept pairs give the touched keys, dropped pairs the keys that are not full.
For a tile of queries, each clause becomes one interval of keys: Fourier-Motzkin elimination of the
query index over [q0, q1], with the exact inverses of `symbols` in place of division by a
coefficient. This is exact over the integers: a key is in the interval if and only if some query of
the tile satisfies the clause. An interval for which a part of the clause was left out is marked as
not exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import sympy as sp

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot, common_order
from ..formula.printing import formula_text
from .closed_forms import Residue, Section, Span, every_key, keys_text
from .literals import (
    Alone,
    AtLeastZero,
    Clause,
    Clauses,
    Congruence,
    Equal,
    IdPair,
    Opaque,
    Related,
)
from .section import formula_of, section_of
from .signs import OverBudget, Signs, isolate
from .symbols import Step, Symbols, expanded, holds, k, q, q0, q1


@dataclass(frozen=True)
class ClauseStep:
    """One clause, and the keys for which some query of a tile satisfies it.

    Attributes:
        clause: the literals that hold together.
        interval: keys left after the query was eliminated; None if there are none.
        section: decides each position if the interval is not exact.
    """

    clause: Clause
    interval: KeyInterval | None
    section: Section | None


@dataclass(frozen=True)
class Side:
    """One side of a proof.

    Attributes:
        steps: one for each clause; None if there were more cases than the budget.
        spans: the closed forms, without repetition.
        texts: the same as text, a line for each.
        reasons: why some tiles may stay undecided.
    """

    steps: tuple[ClauseStep, ...] | None
    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Elimination:
    """Both sides of a proof, the assumptions about parameters, and the order of literals."""

    kept: Side
    dropped: Side
    assumptions: tuple[str, ...]
    signs: Signs


def eliminated(mask: Node) -> Elimination:
    """The proof of a mask without values."""
    symbols = Symbols()
    signs = Signs(symbols)
    clauses, projection = Clauses(symbols, signs), Projection(symbols, signs)

    def step(clause: Clause) -> ClauseStep:
        interval = projection.interval(clause)
        if interval is None or (interval.exact and not _undeclared(interval.documents)):
            return ClauseStep(clause, interval, None)
        return ClauseStep(clause, interval, section_of(clause, signs, symbols))

    def side(holds: bool) -> Side:
        signs.restart()
        try:
            return _side([step(c) for c in clauses.of(mask, holds)], symbols)
        except OverBudget as over:
            whole = every_key(mask if holds else nodes.negation(mask))
            return Side(None, (whole,), ("every key (at most)",), (str(over),))

    kept, dropped = side(True), side(False)
    return Elimination(kept, dropped, _assumptions(symbols), signs)


_ORDERS: Final = {
    "ascending": "{} ascends",
    "contiguous": "equal entries of {} are contiguous",
}


def _slots(reads: tuple[Node, Node]) -> list[Slot]:
    return [cast(Slot, read.own[0]) for read in reads]


def _undeclared(documents: frozenset[IdPair]) -> list[IdPair]:
    """The pairs of id tables without a declared order."""
    return [pair for pair in documents if common_order(*pair) is None]


def _side(steps: list[ClauseStep], symbols: Symbols) -> Side:
    spans: dict[Span, str] = {}
    reasons: list[str] = []
    for step in steps:
        if step.interval is None:
            continue
        span = _span(step.interval, symbols)
        if not span.decided:
            clause = formula_of(step.clause, symbols)
            span = replace(span, section=step.section, clause=clause)
        if not span.decided:
            reasons += step.interval.reasons
        by_position = not span.exact and span.section is not None
        spans.setdefault(span, interval_text(step.interval, by_position))
    return Side(tuple(steps), tuple(spans), tuple(spans.values()), tuple(reasons))


def _span(interval: KeyInterval, symbols: Symbols) -> Span:
    def formulas(expressions: list[Any]) -> tuple[Any, ...]:
        return tuple(symbols.to_node(expression) for expression in expressions)

    residue = None
    if interval.congruence is not None and interval.box is not None:
        residue = _residue(interval.congruence, interval.box, symbols)
    return Span(
        lows=formulas(interval.lows),
        highs=formulas(interval.highs),
        guards=formulas(interval.guards),
        residue=residue,
        exact=interval.exact,
        documents=tuple(
            sorted(_undeclared(interval.documents), key=lambda pair: (pair[0].index, pair[1].index))
        ),
        keys=nodes.conjunction(*interval.keys) if interval.keys else None,
    )


def _residue(congruence: Congruence, box: Box, symbols: Symbols) -> Residue:
    of = symbols.to_node
    sides = {name: tuple(map(of, bounds)) for name, bounds in box.items()}
    c = congruence
    return Residue(of(c.offset), of(c.modulus), of(c.residue), c.holds, **sides)


def _assumptions(symbols: Symbols) -> tuple[str, ...]:
    hidden = {q, k, q0}
    sets = tuple(
        f"{name}: the queries with {formula_text(formula)}"
        for name, formula in symbols.sets.items()
    )
    tables = dict.fromkeys(slot for reads in symbols.families.values() for slot in _slots(reads))
    orders = tuple(_ORDERS[slot.order].format(slot.name) for slot in tables if slot.order)
    return (
        sets
        + orders
        + tuple(
            sorted(
                f"{symbol} >= {low}"
                for symbol, low in symbols.lows.items()
                if symbol not in hidden
                and not symbol.is_Dummy
                and str(symbol) not in ("batch", "head")
            )
        )
    )


@dataclass
class KeyInterval:
    """Keys max(lows) <= k <= min(highs) of one clause, if all `guards` are >= 0.

    Only keys at which all of `keys` hold count. `exact` is False if a part of the clause was left
    out: the interval is then too wide, never too narrow. `exact` is conditional on the order of the
    id tables in `documents`.
    """

    lows: list[Any] = field(default_factory=list)
    highs: list[Any] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    congruence: Congruence | None = None
    box: Box | None = None
    keys: list[Node] = field(default_factory=list)
    documents: frozenset[IdPair] = frozenset()
    reasons: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not self.reasons


Box = dict[str, list[Any]]
"""Bounds on q, on k and on q - k, by the names of `Residue`: "q_lows" and so on. Within them a
congruence is decided tile by tile."""

_SIDES: Final = ("q_lows", "q_highs", "k_lows", "k_highs", "d_lows", "d_highs")


class Projection:
    """Eliminates the query index from the clauses of one structure."""

    def __init__(self, symbols: Symbols, signs: Signs) -> None:
        self._symbols = symbols
        self._signs = signs

    def interval(self, clause: Clause) -> KeyInterval | None:
        """The keys that some query in [q0, q1] keeps by this clause; None if there are none."""
        found = KeyInterval()
        q_lows, q_highs = [q0], [q1]
        queries: list[Node] = []
        for literal in clause:
            if isinstance(literal, Opaque):
                found.reasons.append(literal.why)
            elif isinstance(literal, Congruence):
                self._keep_congruence(found, literal)
            elif isinstance(literal, Equal):
                self._keep_equal(found, literal)
            elif isinstance(literal, Related):
                found.reasons.append(f"{formula_text(literal.relation)} is an entry of a table")
            elif isinstance(literal, Alone):
                self._keep_condition(found, literal, queries)
            elif not self._place(found, literal, q_lows, q_highs, queries):
                return None
        if queries:
            members = nodes.conjunction(*queries)
            # Kernels get no sets, so they need the weaker bounds without the set.
            q_lows += [self._symbols.members(members, "next", low) for low in q_lows]
        for low in q_lows:
            for high in q_highs:
                if not self._condition(found, high - low):
                    return None
        if found.congruence is not None:
            found.box = self._box(clause)
            if found.box is None or found.keys or queries:
                found.box = None
                found.reasons.append("a remainder of q - k beside a condition on other terms")
        found.lows = self._extreme(found.lows, largest=True)
        found.highs = self._extreme(found.highs, largest=False)
        return found

    def _keep_equal(self, found: KeyInterval, literal: Equal) -> None:
        if literal.documents is None:
            formula = nodes.eq(literal.left, literal.right)
            formula = formula if literal.holds else nodes.negation(formula)
            found.reasons.append(f"{formula_text(formula)} is an equality of entries")
        else:
            found.documents |= {literal.documents}

    def _keep_condition(self, found: KeyInterval, literal: Alone, queries: list[Node]) -> None:
        node = literal.node if literal.holds else nodes.negation(literal.node)
        if literal.index == "distance":
            found.reasons.append(f"{formula_text(node)} is a set of distances")
        else:
            (queries if literal.index == "q_idx" else found.keys).append(node)

    def _place(
        self,
        found: KeyInterval,
        literal: AtLeastZero,
        q_lows: list[Any],
        q_highs: list[Any],
        queries: list[Node],
    ) -> bool:
        """Add a literal to the bounds that it is about; False if the clause cannot be satisfied."""
        found.documents |= literal.documents
        if not holds(literal.expression, q):
            return self._condition(found, literal.expression)
        if self._clamped(literal.expression):
            return self._widened(found, literal.expression)
        bound = isolate(literal.expression, q, self._signs)
        if bound is None and not literal.expression.has(k):
            queries.append(nodes.ge(self._symbols.to_node(literal.expression), nodes.const(0)))
            return True
        if bound is None:
            found.reasons.append(f"{literal.expression} >= 0 holds the query index twice")
            return True
        (q_lows if bound[0] == "low" else q_highs).append(bound[1])
        return True

    def _clamped(self, expression: Any) -> bool:
        """Whether an expression reads a table at positions that may lie outside."""
        clamped = self._symbols.clamped
        return bool(clamped) and any(step.family in clamped for step in expression.atoms(Step))

    def _widened(self, found: KeyInterval, expression: Any) -> bool:
        """A bound that reads a table at q, maybe clamped there: the weakest bound of the tile."""
        found.reasons.append(f"{expression} >= 0 reads a table where it may end")
        terms = []
        for term in sp.Add.make_args(expression):
            factor, step = term.as_coeff_Mul()
            if holds(term, q):
                if not isinstance(step, Step) or expanded(step.position - q).has(q):
                    return True
                term = term.xreplace({q: q1 if factor > 0 else q0})
            terms.append(term)
        return self._condition(found, sp.Add(*terms))

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
        bound = isolate(expression, k, self._signs)
        if bound is None and not expression.has(q0, q1) and not self._crosses(expression):
            found.keys.append(nodes.ge(self._symbols.to_node(expression), nodes.const(0)))
        elif bound is None:
            found.reasons.append(f"{expression} >= 0 holds the key index twice")
        else:
            (found.lows if bound[0] == "low" else found.highs).append(bound[1])
        return True

    def _crosses(self, expression: Any) -> bool:
        """Whether it reads tables from one tensor of ids to another; a section is then exact."""
        families = {step.family for step in expression.atoms(Step)} - set(self._symbols.sets)
        return not all(self._symbols.own_ids(family) for family in families)

    def _extreme(self, candidates: list[Any], largest: bool) -> list[Any]:
        """The candidates that no other one always exceeds (or stays below)."""
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
        """The clause as bounds on q, k and q - k; None if it has other literals."""
        box: Box = {name: [] for name in _SIDES}
        for literal in clause:
            if isinstance(literal, AtLeastZero) and not self._bound_box(box, literal.expression):
                return None
        return box

    def _bound_box(self, box: Box, expression: Any) -> bool:
        q_factor, k_factor = expression.coeff(q), expression.coeff(k)
        rest = expanded(expression - q_factor * q - k_factor * k)
        if not rest.has(q, k) and q_factor == -k_factor and q_factor in (1, -1):
            box["d_lows" if q_factor == 1 else "d_highs"].append(-q_factor * rest)
            return True
        for index, other in ((q, k), (k, q)):
            bound = None if holds(expression, other) else isolate(expression, index, self._signs)
            if bound is not None:
                box[f"{index}_{bound[0]}s"].append(bound[1])
                return True
        return False


def interval_text(interval: KeyInterval, by_position: bool) -> str:
    """The keys of a clause as text; `by_position` says that its positions decide the rest."""
    bounded = interval.lows or interval.highs
    text = keys_text(interval.lows, interval.highs) if bounded else "every key"
    if interval.congruence is not None:
        c = interval.congruence
        distance = "q - k" if c.offset == 0 else f"q - k + {c.offset}"
        text += f", where some ({distance}) % {c.modulus} {'==' if c.holds else '!='} {c.residue}"
    if interval.keys:
        text += f", where {formula_text(nodes.conjunction(*interval.keys))}"
    if interval.guards:
        text += ", if " + " and ".join(f"{guard} >= 0" for guard in interval.guards)
    if by_position:
        return f"{text} (at most: decided key by key or query by query)"
    return text + ("" if interval.exact else " (at most)")
