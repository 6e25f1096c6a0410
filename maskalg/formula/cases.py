"""Comparisons over minima, maxima and `where`, taken apart into comparisons without them."""

from __future__ import annotations

from collections.abc import Callable

from . import nodes
from .comparisons import POSITIONS, terms_of
from .nodes import Node


def split_extremum(difference: Node, *, mixed: bool = False) -> Node | None:
    """`difference >= 0` without its first outer minimum or maximum, as a formula; None if none.

    With `mixed` those that read one of the positions alone stay.
    """
    terms = terms_of(difference)
    for place, term in enumerate(terms):
        factor, inner = _scaled(term)
        least = 2 if mixed else 1
        if inner.op not in ("min", "max") or len(inner.indices() & POSITIONS) < least:
            continue
        rest = terms[:place] + terms[place + 1 :]
        cases = [
            nodes.ge(nodes.add(*rest, nodes.mul(nodes.const(factor), arg)), nodes.const(0))
            for arg in inner.args
        ]
        either = (inner.op == "max") == (factor > 0)
        return nodes.disjunction(*cases) if either else nodes.conjunction(*cases)
    return None


def split_where(node: Node) -> Node | None:
    """A comparison over `where`, or over a nested extremum, by cases; None if there is none."""
    for inner in node.walk():
        if inner.op == "where" and _has_position(inner):
            condition, then, otherwise = inner.args
        elif inner.op in ("min", "max") and _has_position(inner):
            then, otherwise = inner.args[0], nodes.rebuild(inner, inner.args[1:])
            order = (then, otherwise) if inner.op == "max" else (otherwise, then)
            condition = nodes.ge(*order)
        else:
            continue
        yes = nodes.substitute(node, _replacing(inner, then))
        no = nodes.substitute(node, _replacing(inner, otherwise))
        return nodes.disjunction(
            nodes.conjunction(condition, yes),
            nodes.conjunction(nodes.negation(condition), no),
        )
    return None


def _replacing(target: Node, replacement: Node) -> Callable[[Node], Node | None]:
    return lambda node: replacement if node == target else None


def _scaled(term: Node) -> tuple[int, Node]:
    """A term as an integer factor and the rest."""
    if term.op == "mul" and len(term.args) == 2:
        for factor, rest in (term.args, term.args[::-1]):
            if factor.op == "const" and isinstance(factor.data, int):
                return factor.data, rest
    return 1, term


def _has_position(node: Node) -> bool:
    return bool(node.indices() & POSITIONS)


def has_extremum(node: Node) -> bool:
    return any(inner.op in ("min", "max") and _has_position(inner) for inner in node.walk())
