"""Sums and products of real numbers as they are written: each operation rounds.

A formula folds its constants together, which rounds otherwise than torch does.
"""

from __future__ import annotations

from ...formula.nodes import SCORE, Node
from ..bounds import Bounds


def unfolded(bounds: Bounds, factor: Node, other: Node) -> Node:
    """A factor that a constant is not distributed over, and not multiplied into.

    Where products are compared, no number is, but for a sign.
    """
    if other.op == "const" and other.data == -1:
        return factor
    if other.op == "const" and factor.op == "add":
        return rounded("add", factor)
    if bounds.exact:
        return rounded("mul", factor)
    if constant_of("mul", other) and constant_of("mul", factor):
        return rounded("mul", factor)
    return factor


def constant_of(op: str, node: Node) -> bool:
    """Whether a sum or a product has a constant that would be folded with another."""
    if node.op == "const":
        return op == "add" or node.data != -1  # a sign does not round
    return node.op == op and any(constant_of(op, arg) for arg in node.args)


def rounded(op: str, node: Node) -> Node:
    """A sum or a product as a real number of its own: each operation on real numbers rounds.

    What is done to the score stays in one sum, where backends look for it.
    """
    if node.op != op or any(part == SCORE for part in node.walk()):
        return node
    return Node("call", "real", (node,), data="float")
