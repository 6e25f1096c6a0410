"""The rung of digits: masks in which queries and keys meet one digit (or one axis) at a time.

The mask and its negation become clauses, each a conjunction of one formula an axis. A tile of
queries is a handful of boxes, with an interval of coordinates on every axis. Some query of a box
keeps a key if and only if, on each axis, some coordinate keeps the key's coordinate. So a clause
keeps a product: one set of key coordinates an axis. Each set comes from the same exact elimination
as for a whole mask.

The *hull* of a clause is the interval of keys that it can touch, over which kernels loop. It uses
the top digit alone, so it holds whole rows of an image: sound, not exact.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Parameter, Slot
from ...formula.printing import formula_text
from ...formula.separation import positions
from ..closed_forms import ROW_FIRST, ROW_LAST, ClosedForms, Span, Told
from ..elimination import KeyInterval, Projection
from ..literals import Clauses
from ..signs import OverBudget, Signs
from ..symbols import Symbols, k, q, q0
from .clauses import DigitClause, DigitClauses, Paths
from .forms import AxisSpan, BoxClause, DigitForms, DigitPart, Split, Tree, digit_texts, span_text
from .tree import DigitTree, NotDigits

_EVERY_KEY: Final = Span((), (), (), None, exact=False, documents=())


Placed = list[tuple[DigitPart, BoxClause]]
"""Clauses, each with the part whose digits it is about."""


def _hull(clauses: Placed) -> tuple[Span, ...]:
    """Spans that hold every key of the clauses."""
    spans: list[Span] = []
    for part, clause in clauses:
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
        return nodes.substitute(bound, digits)

    def digits(node: Node) -> Node | None:
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


_MOST_CONDITIONS: Final = 2
_BOUND_TEXT: Final = {"q_low": "q >=", "q_high": "q <=", "k_low": "k >=", "k_high": "k <="}


def digit_proof(mask: Node) -> Told | None:
    """The forms of a mask that reads minor digits `x % c`; None where digits do not decide it."""
    try:
        parts = _parts(mask, _MOST_CONDITIONS)
    except (NotDigits, OverBudget):
        return None
    bounds = {f"{p.name} >= {p.low}" for p in mask.params if isinstance(p, Slot) and p.low}
    touched: Placed = [(part, clause) for part in parts for clause in part.touched]
    unfull: Placed = [(part, clause) for part in parts for clause in part.unfull]
    forms = ClosedForms(_hull(touched), _hull(unfull), "digits", (), DigitForms(parts))
    texts = [tuple([_text(*clause) for clause in side]) for side in (touched, unfull)]
    return Told(forms, texts[0], texts[1], tuple(sorted(bounds)))


def _parts(mask: Node, conditions: int) -> tuple[DigitPart, ...]:
    """The mask over one tree of digits, or by the cases of a condition without positions."""
    try:
        return (_part(mask),)
    except NotDigits:
        condition = next((n for n in mask.walk() if _is_condition(n)), None)
        if condition is None or not conditions:
            raise
    found: list[DigitPart] = []
    for holds in (True, False):
        case = nodes.substitute(mask, {condition: nodes.const(holds)}.get)
        given = condition if holds else nodes.negation(condition)
        found += [_under(given, part) for part in _parts(case, conditions - 1)]
    return tuple(found)


def _part(mask: Node) -> DigitPart:
    tree = DigitTree()
    tree.collect(mask)
    formula = tree.gathered(mask)
    clauses = DigitClauses(tree, formula)
    sides = []
    for holds in (True, False):
        projected = [_projected(tree, clause) for clause in clauses.of(formula, holds)]
        sides.append(tuple(dict.fromkeys([clause for clause in projected if clause is not None])))
    offsets = tree.offset("q_idx"), tree.offset("kv_idx")
    return DigitPart(*offsets, tree.tree(), sides[0], sides[1])


def _is_condition(node: Node) -> bool:
    return node.kind == "bool" and node.op != "const" and not positions(node)


def _under(condition: Node, part: DigitPart) -> DigitPart:
    def given(clauses: tuple[BoxClause, ...]) -> tuple[BoxClause, ...]:
        return tuple([replace(c, conditions=(condition, *c.conditions)) for c in clauses])

    return replace(part, touched=given(part.touched), unfull=given(part.unfull))


def _projected(tree: DigitTree, clause: DigitClause) -> BoxClause | None:
    """A clause with the key intervals of each axis; None where an axis keeps nothing."""
    by_axis: dict[Paths, list[Node]] = {}
    for paths, formula in clause.axes:
        by_axis.setdefault(paths, []).append(tree.plain(formula))
    used = [path for paths in by_axis for path in paths]
    if len(used) != len(set(used)):
        raise NotDigits("one digit in two axes")
    axes = []
    for paths, formulas in by_axis.items():
        spans = _spans(nodes.conjunction(*formulas), tree.may_be_negative(paths[0]))
        if not spans:
            return None
        axes.append((tree.axis(paths), spans))
    sides: dict[str, list[Node]] = {name: [] for name in _BOUND_TEXT}
    for name, limit in clause.bounds:
        sides[name].append(limit)
    q_low, q_high, k_low, k_high = (tuple(limits) for limits in sides.values())
    return BoxClause(clause.conditions, q_low, q_high, k_low, k_high, tuple(axes))


def _spans(formula: Node, negative: bool) -> tuple[AxisSpan, ...]:
    """The intervals an axis keeps; axes of one structure share one projection."""
    # By name: axes whose parameters have the same names number them alike.
    own = sorted(dict.fromkeys(cast("tuple[Slot, ...]", formula.params)), key=lambda s: s.name)
    renamed: dict[Parameter, Parameter] = {}
    for index, parameter in enumerate(own):
        slot = renamed[parameter] = copy(parameter)
        slot.index, slot.name, slot.text = index, f"n{index}", f"#{index}"
    back = dict(zip([slot.text for slot in renamed.values()], own, strict=True))
    kinds = tuple([(s.low, s.kind, s.is_table, s.ndim, s.order) for s in own])
    spans = _project(nodes.with_parameters(formula, renamed.__getitem__), kinds, negative)

    def restored(bounds: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple([nodes.with_parameters(b, lambda p: back[p.text]) for b in bounds])

    return tuple([AxisSpan(restored(s.lows), restored(s.highs), restored(s.guards)) for s in spans])


@lru_cache(maxsize=1024)
def _project(formula: Node, kinds: tuple[object, ...], negative: bool) -> tuple[AxisSpan, ...]:
    """`kinds` tells apart what the text of a formula leaves out of its slots."""
    symbols = Symbols()
    if negative:
        for symbol in (q, k, q0):
            del symbols.lows[symbol]
    signs = Signs(symbols)
    projection = Projection(symbols, signs)
    spans: dict[AxisSpan, None] = {}
    for clause in Clauses(symbols, signs).of(formula, True):
        interval = projection.interval(clause)
        if interval is None:
            continue
        plain = interval.exact and interval.congruence is None and not interval.documents
        # Sets hold positions, and here the indices are digits.
        if not plain or interval.keys or symbols.sets:
            raise NotDigits("an axis that is not projected exactly")
        spans[_axis_span(interval, symbols)] = None
    return tuple(spans)


def _axis_span(interval: KeyInterval, symbols: Symbols) -> AxisSpan:
    lows, highs, guards = (
        tuple([symbols.to_node(expression) for expression in side])
        for side in (interval.lows, interval.highs, interval.guards)
    )
    return AxisSpan(lows, highs, guards)


def _text(part: DigitPart, clause: BoxClause) -> str:
    names = digit_texts(part.tree)
    texts = [
        f"{', '.join(names[d] for d in axis.digits)}: {' or '.join(span_text(s) for s in spans)}"
        for axis, spans in clause.axes
    ]
    limits = (clause.q_lows, clause.q_highs, clause.k_lows, clause.k_highs)
    for sign, side in zip(_BOUND_TEXT.values(), limits, strict=True):
        texts += [f"{sign} {formula_text(limit)}" for limit in side]
    texts += [f"if {formula_text(condition)}" for condition in clause.conditions]
    return "; ".join(texts) or "every key"
