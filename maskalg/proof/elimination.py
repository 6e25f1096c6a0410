"""A proof by elimination: clauses of a mask, and the keys that some query of a tile gives each.

Both sides are taken: the pairs that the mask keeps give the touched keys, those that it drops the
keys that are not full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot, common_order
from ..formula.printing import formula_text
from .closed_forms import Residue, Section, Span, every_key
from .literals import Clause, Clauses, IdPair
from .projection import Box, KeyInterval, Projection, interval_text
from .section import formula_of, section_of
from .signs import OverBudget, Signs
from .symbols import Symbols, k, q, q0


@dataclass(frozen=True)
class ClauseStep:
    """One clause and the keys that some query of a tile satisfies it with.

    Attributes:
        clause: the literals that hold together.
        interval: keys left after the query was eliminated; None where there are none.
        section: how each position is decided where the interval is not exact.
    """

    clause: Clause
    interval: KeyInterval | None
    section: Section | None


@dataclass(frozen=True)
class Side:
    """One side of a proof.

    Attributes:
        steps: one for each clause; None where there were more cases than the proof looks at.
        spans: the closed forms, without repetition.
        texts: the same as text, a line for each.
        reasons: why tiles may stay open.
    """

    steps: tuple[ClauseStep, ...] | None
    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Elimination:
    """Both sides of a proof, what is assumed of the parameters, and the order of literals."""

    kept: Side
    dropped: Side
    assumptions: tuple[str, ...]
    signs: Signs


def eliminated(mask: Node) -> Elimination:
    """The proof of a mask without values."""
    symbols = Symbols()
    signs = Signs(symbols)
    clauses, projection = Clauses(symbols, signs), Projection(symbols, signs)

    def side(holds: bool) -> Side:
        signs.restart()
        try:
            return _side([_step(c, projection, symbols) for c in clauses.of(mask, holds)], symbols)
        except OverBudget as over:
            whole = every_key(mask if holds else nodes.negation(mask))
            return Side(None, (whole,), ("every key (at most)",), (str(over),))

    kept, dropped = side(True), side(False)
    return Elimination(kept, dropped, _assumptions(symbols), signs)


def _step(clause: Clause, projection: Projection, symbols: Symbols) -> ClauseStep:
    interval = projection.interval(clause)
    if interval is None:
        return ClauseStep(clause, None, None)
    open_tiles = not interval.exact or bool(_undeclared(interval.documents))
    return ClauseStep(
        clause, interval, section_of(clause, projection, symbols) if open_tiles else None
    )


_ORDERS: Final = {
    "ascending": "{} ascends",
    "contiguous": "equal entries of {} are contiguous",
}


def _slots(reads: tuple[Node, Node]) -> list[Slot]:
    return [cast(Slot, read.own[0]) for read in reads]


def _undeclared(documents: frozenset[IdPair]) -> list[IdPair]:
    """The pairs of id tables whose order no declaration says."""
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
        residue = _residue(interval, interval.box, symbols)
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


def _residue(interval: KeyInterval, box: Box, symbols: Symbols) -> Residue:
    congruence = interval.congruence
    assert congruence is not None
    sides = (box.q_lows, box.q_highs, box.k_lows, box.k_highs, box.d_lows, box.d_highs)
    bounds = [tuple(symbols.to_node(bound) for bound in side) for side in sides]
    return Residue(
        symbols.to_node(congruence.offset),
        symbols.to_node(congruence.modulus),
        symbols.to_node(congruence.residue),
        congruence.holds,
        *bounds,
    )


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
