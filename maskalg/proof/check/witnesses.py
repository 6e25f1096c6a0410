"""Queries that may keep a key: the ends of a tile, and where comparisons of a formula change.

A certificate of exactness names queries. Those found here are only proposals: the certificate must
refute that none of them keeps the key, or the claim stays unchecked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, cast

from ...formula import nodes
from ...formula.nodes import Node
from ..closed_forms import ROW_FIRST, ROW_LAST
from ..documents import same_document, without_query

End = Literal["low", "high"]


def witnesses(cube: Node, bounds: Iterable[Node]) -> Iterator[list[Node]]:
    """Proposals of queries that satisfy a conjunction, the likeliest first.

    Comparisons bound the query from below and from above. Proposed are the greatest lower end,
    the least upper end, and the members next to these of the sets in the bounds; at last, all
    ends at once.
    """
    ends = dict.fromkeys(_ends(cube))
    lows = [ROW_FIRST, *(point for end, point in ends if end == "low")]
    highs = [ROW_LAST, *(point for end, point in ends if end == "high")]
    low, high = nodes.maximum(*lows), nodes.minimum(*highs)
    sets = dict.fromkeys(n.args[:-1] for b in bounds for n in b.walk() if n.op == "member")
    yield [low]
    yield [high]
    for own in sets:
        yield [Node("member", "int", (*own, low), "next")]
        yield [Node("member", "int", (*own, high), "previous")]
    points = [*lows, *highs]
    found = [Node("member", "int", (*own, p), "next") for own in sets for p in points]
    last = [Node("member", "int", (*own, ROW_LAST), "previous") for own in sets]
    yield list(dict.fromkeys([*points, *found, *last]))


def _ends(cube: Node) -> Iterator[tuple[End, Node]]:
    """Queries at which a comparison of the cube begins ("low") or ends ("high")."""
    for literal in cube.args if cube.op == "and" else (cube,):
        pair = same_document(literal) if literal.op == "eq" else None
        if pair is not None:
            first, last = pair.queries() or (None, None)
            if first is not None and last is not None:
                yield "low", first
                yield "high", last
        for expression in _at_least_zero(literal):
            for branch in _branches(expression):
                end = _end(branch)
                if end is not None:
                    yield end


def _branches(expression: Node) -> Iterator[Node]:
    """A sum with max(a, b) or min(a, b), once with a and once with b in its place."""
    choice = next((n for n in expression.walk() if n.op in ("max", "min")), None)
    if choice is None or expression.op != "add":
        yield expression
        return
    for arg in choice.args:
        yield from _branches(nodes.substitute(expression, {choice: arg}.get))


def _at_least_zero(literal: Node) -> Iterator[Node]:
    """The expressions e of a comparison of integers as inequalities e >= 0."""
    holds, atom = (False, literal.args[0]) if literal.op == "not" else (True, literal)
    if atom.op not in ("ge", "eq") or any(arg.kind != "int" for arg in atom.args):
        return
    difference = nodes.subtract(*atom.args)
    if atom.op == "ge":
        yield difference if holds else nodes.add(nodes.negate(difference), nodes.const(-1))
    elif holds:
        yield difference
        yield nodes.negate(difference)


def _end(expression: Node) -> tuple[End, Node] | None:
    """The smallest or greatest query with expression >= 0, if one step finds it."""
    terms = expression.args if expression.op == "add" else (expression,)
    moving = [term for term in terms if "q_idx" in term.indices()]
    if len(moving) != 1:
        return None
    rest = nodes.add(*(term for term in terms if term is not moving[0]))
    factor, inner = _scaled(moving[0])
    if inner == nodes.Q:
        size = nodes.const(abs(factor))
        if factor > 0:
            above = nodes.add(nodes.negate(rest), nodes.const(factor - 1))
            return "low", nodes.floordiv(above, size)
        return "high", nodes.floordiv(rest, size)
    if inner.op != "floordiv" or abs(factor) != 1:
        return None
    position, divisor = inner.args
    offset = without_query(position)
    if offset is None or "q_idx" in divisor.indices():
        return None
    if factor > 0:
        return "low", nodes.subtract(nodes.mul(divisor, nodes.negate(rest)), offset)
    last = nodes.add(nodes.mul(divisor, rest), divisor, nodes.const(-1))
    return "high", nodes.subtract(last, offset)


def _scaled(term: Node) -> tuple[int, Node]:
    """A term as an integer factor and its other factors."""
    if term.op == "mul" and term.args:
        numbers = [arg for arg in term.args if arg.op == "const"]
        others = [arg for arg in term.args if arg.op != "const"]
        if len(numbers) == 1 and len(others) == 1:
            return cast(int, numbers[0].data), others[0]
    return 1, term
