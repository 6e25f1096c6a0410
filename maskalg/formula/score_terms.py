"""Formulas of what a score becomes: f(s) of the scaled score s, mostly s and something added."""

from __future__ import annotations

from . import nodes
from .nodes import SCORE, Node


def added(term: Node) -> Node:
    """f(s) - s, without s where f is additive."""
    if term.op == "score":
        return nodes.const(0.0)
    if term.op == "add":
        rest = [part for part in term.args if part.op != "score"]
        if len(rest) == len(term.args) - 1 and not any(_reads_score(part) for part in rest):
            return nodes.add(*rest)
    return nodes.subtract(term, SCORE)


def joined(left: Node, right: Node) -> Node:
    """f(s) + g(s) - s."""
    if left.op == "score":
        return right
    if right.op == "score":
        return left
    return nodes.add(left, added(right)) if is_additive(right) else nodes.add(right, added(left))


def composed(outer: Node, inner: Node) -> Node:
    """f(g(s))."""
    return nodes.substitute(outer, lambda node: inner if node.op == "score" else None)


def chosen(condition: Node, then: Node, otherwise: Node) -> Node:
    """f(s) where the condition holds, else g(s); additive where both are."""
    if is_additive(then) and is_additive(otherwise):
        return nodes.add(SCORE, nodes.where(condition, added(then), added(otherwise)))
    return nodes.where(condition, then, otherwise)


def is_additive(term: Node) -> bool:
    """Whether f(s) - s does not read s."""
    return not _reads_score(added(term))


def _reads_score(node: Node) -> bool:
    return any(inner.op == "score" for inner in node.walk())
