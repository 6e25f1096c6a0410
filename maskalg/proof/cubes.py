"""Formulas as alternatives without `or`, and where each of them changes as the query moves.

Written for certificates, apart from `literals.py`: what checks a proof shares no code with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from .. import nodes
from ..nodes import Node
from .document_laws import same_document, without_query

MOST_CUBES: Final = 32


def cubes(node: Node, holds: bool) -> list[Node]:
    """Conjunctions of comparisons that together say the formula, or its negation.

    A formula of more than `MOST_CUBES` of them is left whole.
    """
    found = _cubes(node, holds)
    return [node if holds else nodes.negation(node)] if found is None else found


def _cubes(node: Node, holds: bool) -> list[Node] | None:
    if node.op == "const":
        return [nodes.TRUE] if bool(node.data) == holds else []
    if node.op == "not":
        return _cubes(node.args[0], not holds)
    if node.op not in ("and", "or"):
        return [node if holds else nodes.negation(node)]
    parts = [_cubes(arg, holds) for arg in node.args]
    if (node.op == "or") == holds:
        joined = None if None in parts else [cube for part in parts for cube in part or []]
        return joined if joined is not None and len(joined) <= MOST_CUBES else None
    product = [nodes.TRUE]
    for part in parts:
        if part is None or len(product) * len(part) > MOST_CUBES:
            return None
        product = [nodes.conjunction(left, right) for left in product for right in part]
    return product


def turning_points(cube: Node) -> list[Node]:
    """Queries, as formulas over the key, at which a comparison of the cube begins or ends."""
    found: dict[str, Node] = {}
    for literal in cube.args if cube.op == "and" else (cube,):
        pair = same_document(literal) if literal.op == "eq" else None
        if pair is not None:
            found |= {query.canonical: query for query in pair.queries()}
        for expression in _at_least_zero(literal):
            point = _turning_point(expression)
            if point is not None:
                found.setdefault(point.canonical, point)
    return list(found.values())


def _at_least_zero(literal: Node) -> Iterator[Node]:
    """The inequalities e >= 0 that a comparison of integers stands for."""
    holds, atom = (False, literal.args[0]) if literal.op == "not" else (True, literal)
    if atom.op not in ("ge", "eq") or any(arg.kind != "int" for arg in atom.args):
        return
    difference = nodes.subtract(*atom.args)
    if atom.op == "ge":
        yield difference if holds else nodes.add(nodes.negate(difference), nodes.const(-1))
    elif holds:
        yield difference
        yield nodes.negate(difference)


def _turning_point(expression: Node) -> Node | None:
    """The least or the greatest query with expression >= 0, where it is found by one step."""
    terms = expression.args if expression.op == "add" else (expression,)
    moving = [term for term in terms if "q_idx" in term.indices()]
    if len(moving) != 1:
        return None
    rest = nodes.add(*(term for term in terms if term is not moving[0]))
    factor, inner = _scaled(moving[0])
    if inner == nodes.Q:
        size = nodes.const(abs(factor))
        if factor > 0:
            return nodes.floordiv(nodes.add(nodes.negate(rest), nodes.const(factor - 1)), size)
        return nodes.floordiv(rest, size)
    if inner.op != "floordiv" or abs(factor) != 1:
        return None
    position, divisor = inner.args
    offset = without_query(position)
    if offset is None or "q_idx" in divisor.indices():
        return None
    if factor > 0:
        return nodes.subtract(nodes.mul(divisor, nodes.negate(rest)), offset)
    last = nodes.add(nodes.mul(divisor, rest), divisor, nodes.const(-1))
    return nodes.subtract(last, offset)


def _scaled(term: Node) -> tuple[int, Node]:
    """A term as an integer factor and the rest."""
    if term.op == "mul" and term.args:
        numbers = [arg for arg in term.args if arg.op == "const"]
        others = [arg for arg in term.args if arg.op != "const"]
        if len(numbers) == 1 and len(others) == 1:
            return cast(int, numbers[0].data), others[0]
    return 1, term
