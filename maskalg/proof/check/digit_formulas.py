"""The clauses of digit forms as formulas of one query and one key.

A tile of queries is a few boxes of digits (`schedule/digits/digits.py`). On an axis whose digits
are in order, each but the first with all of its values whatever the others are, the coordinates of
a box are an interval, whose ends and the spans of the axis give the coordinates of the keys. A
certificate compares a clause with the mask pair by pair, and each axis with itself: at an interval
of query coordinates, and at each of them.
"""

from __future__ import annotations

from ...formula import nodes
from ...formula.nodes import Node
from ..digits.forms import Axis, AxisSpan, BoxClause, DigitPart, Leaf, Tree
from ..symbols import ROW_FIRST, ROW_LAST
from .span_formulas import between


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
    """The clause keeps the key for a tile of the query alone."""
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
    """The key coordinate is in the span of the query coordinates q0..q1."""
    guards = [nodes.ge(guard, nodes.const(0)) for guard in span.guards]
    return nodes.conjunction(*between(nodes.K, span.lows, span.highs), *guards)


def at_one_query(spans: tuple[AxisSpan, ...]) -> Node:
    """The key coordinate is in one of the spans, of one query coordinate."""
    alone = {ROW_FIRST: nodes.Q, ROW_LAST: nodes.Q}
    return nodes.substitute(nodes.disjunction(*map(span_formula, spans)), alone.get)
