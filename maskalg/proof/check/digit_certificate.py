"""The claims of forms by digits, proved again: blocks decided digit by digit.

Schedules use digits in a fixed way, which is tested on its own: they split an interval of positions
into boxes of digits; each axis gives key coordinates for a box of queries; a key is kept if all of
its coordinates are among these. So the following claims together say that the blocks are right:

- *pairs*: the mask keeps a query and a key exactly if some clause does, for a tile of that query
  alone; `q // c` and `q % c` are known by the law of floor division;
- *wider*: if one query coordinate keeps a key coordinate, so does every interval around it (sound);
- *met*: if an interval of query coordinates keeps a key coordinate, so does some coordinate in it
  (exact). Digits of a box are independent, so coordinates found axis by axis make one query;
- *digits*: the later digits of a coordinate are below their radices, and take every value there;
- *hull*: the intervals that kernels walk hold every key of every clause (sound).

Clauses are compared as formulas of one query and one key. A tile of queries is a few boxes of
digits (`schedule/digits/digits.py`). If the digits of an axis are in order, and each but the first
takes all of its values, the coordinates of a box are an interval; from its ends, the spans of the
axis give the coordinates of the keys. A certificate compares a clause with the mask pair by pair,
and the spans of an axis for an interval of query coordinates with those for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import sympy as sp

from ...formula import nodes
from ...formula.laws import Condition, NotNegative
from ...formula.nodes import Node
from ...formula.printing import formula_text
from ..closed_forms import ROW_FIRST, ROW_LAST, ClosedForms, Span
from ..digits.forms import (
    Axis,
    AxisSpan,
    BoxClause,
    DigitForms,
    DigitPart,
    Leaf,
    Tree,
    digit_texts,
    span_text,
)
from .cubes import cases, cubes
from .encoding import Encoder
from .obligations import UNCHECKED, Obligation, additions, discharged, excluded, met, reached
from .span_formulas import between, hull_formula
from .witnesses import witnesses


def digits_of(tree: Tree, number: Node) -> list[Node]:
    """The digits of a number, most significant first."""
    if isinstance(tree, Leaf):
        return [number]
    major, minor = nodes.floordiv(number, tree.radix), nodes.mod(number, tree.radix)
    return digits_of(tree.major, major) + digits_of(tree.minor, minor)


def coordinate(axis: Axis, digits: list[Node]) -> Node:
    """The coordinate on an axis of a number with these digits."""
    found = digits[axis.digits[0]]
    for digit, radix in zip(axis.digits[1:], axis.radices, strict=True):
        found = nodes.add(nodes.mul(found, radix), digits[digit])
    return found


def pair_formula(part: DigitPart, clause: BoxClause) -> Node:
    """The condition that the clause keeps the key, for a tile of one query."""
    q_digits, k_digits = (
        digits_of(part.tree, nodes.add(index, offset))
        for index, offset in ((nodes.Q, part.q_offset), (nodes.K, part.k_offset))
    )
    parts = list(clause.conditions)
    parts += between(nodes.Q, clause.q_lows, clause.q_highs)
    parts += between(nodes.K, clause.k_lows, clause.k_highs)
    for axis, spans in clause.axes:
        q, k = coordinate(axis, q_digits), coordinate(axis, k_digits)
        parts.append(nodes.substitute(at_one_query(spans), {nodes.Q: q, nodes.K: k}.get))
    return nodes.conjunction(*parts)


def span_formula(span: AxisSpan) -> Node:
    """The condition that a span of query coordinates q0..q1 holds the key coordinate."""
    guards = [nodes.ge(guard, nodes.const(0)) for guard in span.guards]
    return nodes.conjunction(*between(nodes.K, span.lows, span.highs), *guards)


def at_one_query(spans: tuple[AxisSpan, ...]) -> Node:
    """The condition that one of the spans, for one query coordinate, holds the key coordinate."""
    alone = {ROW_FIRST: nodes.Q, ROW_LAST: nodes.Q}
    return nodes.substitute(nodes.disjunction(*map(span_formula, spans)), alone.get)


# Fields that are verified here; forms that use others are not verified.
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    DigitForms: ("parts",),
    DigitPart: ("q_offset", "k_offset", "tree", "touched", "unfull"),
    BoxClause: ("conditions", "q_lows", "q_highs", "k_lows", "k_highs", "axes"),
    Axis: ("digits", "radices"),
    AxisSpan: ("lows", "highs", "guards"),
    Span: ("lows", "highs", "guards"),
}

Kind = Literal["sound", "exact"]


@dataclass(frozen=True)
class _Projected:
    """An axis of a clause and its spans; `signed` if a coordinate may be negative."""

    tree: Tree
    axis: Axis
    spans: tuple[AxisSpan, ...]
    signed: bool

    @property
    def text(self) -> str:
        names = digit_texts(self.tree)
        return ", ".join(names[digit] for digit in self.axis.digits)

    def domain(self, encoder: Encoder) -> list[Condition]:
        """The conditions on an interval of query coordinates and a key coordinate."""
        first, last, key = (encoder.term(node) for node in (ROW_FIRST, ROW_LAST, nodes.K))
        known = [] if self.signed else [first, key]
        return [NotNegative(gap) for gap in (last - first, *known)]


def digit_claims(mask: Node, forms: ClosedForms) -> Iterator[Obligation]:
    """Every claim of the digit forms of a mask, and how it was proved."""
    digits = forms.digits
    if not isinstance(digits, DigitForms):
        yield Obligation("both", "sound", "blocks by digits", f"{UNCHECKED}: no forms of digits")
        return
    seen: set[_Projected] = set()
    for side, holds, hull in (("touched", True, forms.touched), ("not full", False, forms.unfull)):
        opposite = cubes(mask, not holds)
        sides = [(part, part.touched if holds else part.unfull) for part in digits.parts]
        clauses = [(part, clause) for part, found in sides for clause in found]
        yield from _additions(side, digits, clauses, hull)
        alternatives = [case for cube in cubes(mask, holds) for case in cases(cube)]
        yield from _kept(side, alternatives, clauses)
        for part, clause in clauses:
            yield from _disjoint(side, clause)
            claim = f"each pair of a clause is met: {_axes_text(part, clause)}"
            yield Obligation(side, "exact", claim, _implied(pair_formula(part, clause), opposite))
            for axis, spans in clause.axes:
                projected = _Projected(part.tree, axis, spans, _signed(part, axis))
                if projected not in seen:
                    seen.add(projected)
                    yield from _axis_claims(side, projected)
        yield from _hull_claims(side, clauses, hull)


def _additions(
    side: str,
    digits: DigitForms,
    clauses: list[tuple[DigitPart, BoxClause]],
    hull: tuple[Span, ...],
) -> Iterator[Obligation]:
    values: list[object] = [digits, *digits.parts, *(clause for _, clause in clauses), *hull]
    for _, clause in clauses:
        for axis, spans in clause.axes:
            values += [axis, *spans]
    for value in values:
        base = next((kind for kind in _FIELDS if isinstance(value, kind)), None)
        for name in additions(value, _FIELDS[base] if base else ()):
            yield Obligation(side, "sound", f"blocks by {name}", f"{UNCHECKED}: {name}")


def _kept(
    side: str, alternatives: list[Node], clauses: list[tuple[DigitPart, BoxClause]]
) -> Iterator[Obligation]:
    for cube in alternatives:
        claim = f"in a clause of digits, where {formula_text(cube)}"
        by = excluded([cube], [pair_formula(*clause) for clause in clauses])
        yield Obligation(side, "sound", claim, by)


def _implied(pair: Node, opposite: list[Node]) -> str:
    """How it is proved that no pair of the clause lies in one of the cubes of the other side."""
    found = dict.fromkeys(excluded([pair, cube]) for cube in opposite)
    left = next((by for by in found if by.startswith(UNCHECKED)), None)
    return left or max(found, key=len, default="linear arithmetic")


def _disjoint(side: str, clause: BoxClause) -> Iterator[Obligation]:
    """Coordinates are chosen axis by axis, so no digit is on two of them."""
    digits = [digit for axis, _ in clause.axes for digit in axis.digits]
    if len(digits) != len(set(digits)):
        why = f"{UNCHECKED}: a digit on two axes"
        yield Obligation(side, "exact", "the axes of a clause are independent", why)


def _axis_claims(side: str, projected: _Projected) -> Iterator[Obligation]:
    if len(projected.axis.digits) > 1:
        by = "digits" if _every_value(projected) else f"{UNCHECKED}: not digits in their order"
        yield Obligation(side, "sound", f"later digits take every value: {projected.text}", by)
    for span in projected.spans:
        pointwise = at_one_query((span,))
        text = f"{projected.text}: {span_text(span)}"
        encoder = Encoder()
        x, first, last = (encoder.term(node) for node in (nodes.Q, ROW_FIRST, ROW_LAST))
        conditions = [*projected.domain(encoder), NotNegative(x - first), NotNegative(last - x)]
        conditions.append(encoder.condition(pointwise))
        conditions += [encoder.condition(span_formula(other), False) for other in projected.spans]
        claim = f"kept of every interval around a query: {text}"
        yield Obligation(side, "sound", claim, discharged(encoder, conditions))
        by = met(_reached(projected, span, points) for points in witnesses(pointwise, ()))
        yield Obligation(side, "exact", f"each coordinate is met: {text}", by)


def _reached(projected: _Projected, span: AxisSpan, points: list[Node]) -> str:
    encoder = Encoder()
    conditions = [*projected.domain(encoder), encoder.condition(span_formula(span))]
    return reached(encoder, conditions, at_one_query((span,)), points)


def _every_value(projected: _Projected) -> bool:
    """Whether the digits stand in order, and those after the first take every value below their
    radix, whatever the others are."""
    axis = projected.axis
    if list(axis.digits) != sorted(set(axis.digits)) or len(axis.radices) != len(axis.digits) - 1:
        return False
    encoder = Encoder()
    counts = _counts(projected.tree, None, encoder)
    return all(
        counts[digit] is not None and sp.expand(counts[digit] - encoder.term(radix)) == 0
        for digit, radix in zip(axis.digits[1:], axis.radices, strict=True)
    )


def _counts(tree: Tree, numbers: Any, encoder: Encoder) -> list[Any]:
    """How many values each digit of a number below `numbers` has; None where that is unbounded, or
    depends on other digits."""
    if isinstance(tree, Leaf):
        return [numbers]
    radix = encoder.term(tree.radix)
    if numbers is None:
        return _counts(tree.major, None, encoder) + _counts(tree.minor, radix, encoder)
    whole, rest = sp.fraction(sp.cancel(numbers / radix))
    if rest != 1:
        return [None for _ in digit_texts(tree)]
    return _counts(tree.major, whole, encoder) + _counts(tree.minor, radix, encoder)


def _hull_claims(
    side: str, clauses: list[tuple[DigitPart, BoxClause]], hull: tuple[Span, ...]
) -> Iterator[Obligation]:
    """Claims that the hull holds all keys that a clause may keep for a tile's top digits."""
    for kept in dict.fromkeys(kept for clause in clauses for kept in _kept_by_top(*clause)):
        claim = f"in an interval, where {formula_text(kept)}"
        yield Obligation(side, "sound", claim, excluded([kept], map(hull_formula, hull)))


def _kept_by_top(part: DigitPart, clause: BoxClause) -> Iterator[Node]:
    """Formulas of q0, q1 and the key; if the clause keeps the key, one of them holds."""
    tops = [spans for axis, spans in clause.axes if axis.digits == (0,)]
    places = {
        index: digits_of(part.tree, nodes.add(index, offset))[0]
        for index, offset in (
            (ROW_FIRST, part.q_offset),
            (ROW_LAST, part.q_offset),
            (nodes.K, part.k_offset),
        )
    }
    bounds = between(nodes.K, clause.k_lows, clause.k_highs)
    for span in tops[0] if tops else (AxisSpan((), (), ()),):
        top = nodes.substitute(span_formula(span), places.get)
        yield nodes.conjunction(top, *bounds, *clause.conditions)


def _signed(part: DigitPart, axis: Axis) -> bool:
    """Whether a coordinate may be negative: only the top digit, if an offset moves it."""
    moved = part.q_offset, part.k_offset
    return axis.digits[0] == 0 and any(offset != nodes.const(0) for offset in moved)


def _axes_text(part: DigitPart, clause: BoxClause) -> str:
    names = digit_texts(part.tree)
    return " and ".join(names[d] for axis, _ in clause.axes for d in axis.digits) or "every pair"
