"""Equalities of remainders, read off the formula."""

from __future__ import annotations

from dataclasses import dataclass

from ...formula import nodes
from ...formula.nodes import Node


@dataclass(frozen=True)
class SameRemainder:
    """left mod modulus equals right mod modulus, or the number `right` itself."""

    left: Node
    right: Node
    modulus: Node
    number: bool


def congruence(node: Node) -> SameRemainder | None:
    """An equality of a remainder and of a remainder by the same divisor, or of any number."""
    for one, other in (node.args, node.args[::-1]):
        if one.op == "mod" and other.op == "mod" and one.args[1] == other.args[1]:
            return SameRemainder(one.args[0], other.args[0], one.args[1], number=False)
    for one, other in (node.args, node.args[::-1]):
        if one.op == "mod":
            return SameRemainder(one.args[0], other, one.args[1], number=True)
    return None


def by_branch(node: Node) -> Node:
    """The equality of a `where` and a value as one of the equalities of its branches."""
    where, other = node.args if node.args[0].op == "where" else node.args[::-1]
    chosen, then, otherwise = where.args
    return nodes.disjunction(
        nodes.conjunction(chosen, nodes.eq(then, other)),
        nodes.conjunction(nodes.negation(chosen), nodes.eq(otherwise, other)),
    )
