"""The keys a mask told by digits can touch, as one interval a clause: what kernels loop over.

Only the top digit is used, so the interval reaches over whole rows of the canvas: sound, not
exact.
"""

from __future__ import annotations

from typing import Final

from ...formula import nodes
from ...formula.nodes import Node
from ..closed_forms import Span
from ..symbols import ROW_FIRST, ROW_LAST
from .forms import AxisSpan, BoxClause, DigitForms, DigitPart, Split, Tree

_EVERY_KEY: Final = Span((), (), (), None, exact=False, documents=())


def hull_spans(forms: DigitForms, *, touched: bool) -> tuple[Span, ...]:
    """Spans that hold every touched key, or every key that is not full."""
    spans: list[Span] = []
    sides = [(part, part.touched if touched else part.unfull) for part in forms.parts]
    for part, clause in [(part, clause) for part, clauses in sides for clause in clauses]:
        tops = [found for axis, found in clause.axes if axis.digits == (0,)]
        for top in tops[0] if tops else (AxisSpan((), (), ()),):
            span = _span(part, clause, top)
            if span == _EVERY_KEY:
                return (_EVERY_KEY,)
            if span not in spans:
                spans.append(span)
    return tuple(spans)


def _span(part: DigitPart, clause: BoxClause, top: AxisSpan) -> Span:
    def of_rows(bound: Node) -> Node:
        return nodes.substitute(bound, replace)

    def replace(node: Node) -> Node | None:
        if node in (ROW_FIRST, ROW_LAST):
            return _top_digit(part.tree, nodes.add(node, part.q_offset))
        return None

    def first_key(digit: Node) -> Node:
        return nodes.subtract(_first_of(part.tree, digit), part.k_offset)

    one = nodes.const(1)
    highs = [nodes.subtract(first_key(nodes.add(of_rows(bound), one)), one) for bound in top.highs]
    return Span(
        lows=(*[first_key(of_rows(bound)) for bound in top.lows], *clause.k_lows),
        highs=(*highs, *clause.k_highs),
        guards=tuple([of_rows(guard) for guard in top.guards]),
        residue=None,
        exact=False,
        documents=(),
    )


def _top_digit(tree: Tree, number: Node) -> Node:
    while isinstance(tree, Split):
        number, tree = nodes.floordiv(number, tree.radix), tree.major
    return number


def _first_of(tree: Tree, digit: Node) -> Node:
    """The smallest number with a top digit."""
    if not isinstance(tree, Split):
        return digit
    return nodes.mul(_first_of(tree.major, digit), tree.radix)
