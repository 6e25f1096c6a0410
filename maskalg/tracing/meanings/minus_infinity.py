"""Splits a score that is -inf under a condition into a mask and the remaining score.

The split is exact: the score is the remaining one where the mask keeps, and -inf elsewhere. Entries
of tensors and captured numbers count as finite: +inf added to -inf would make a row NaN.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Final, cast

import torch

from ...formula import nodes
from ...formula.functions import function_of
from ...formula.nodes import FALSE, TRUE, Node

_LEAVES: Final = ("index", "scalar", "read", "extent", "score")
_FINITE_OF_FINITE: Final = ("add", "mul", "min", "max", "where")


def is_minus_infinity(tensor: torch.Tensor) -> bool:
    """Whether a tensor is the number -inf; on a device, False, so that nothing waits for it."""
    plain = type(tensor) is torch.Tensor and tensor.ndim == 0 and tensor.device.type == "cpu"
    if not plain or not tensor.is_floating_point() or tensor.requires_grad:
        return False
    try:
        return tensor.item() == -math.inf
    except RuntimeError:  # within torch.vmap it stands for many numbers
        return False


def split(node: Node) -> tuple[Node, Node]:
    """The condition under which a score is not -inf, and the score under that condition.

    Follows choices whose condition does not read the score, sums with finite terms, products and
    quotients by positive constants, and minima; elsewhere the condition is TRUE.
    """
    if _is_dropped(node):
        return FALSE, node
    if node.op == "where" and "score" not in node.args[0].ops():
        return _choice(*node.args)
    if node.op in ("add", "min"):
        return _joined(node)
    if node.op == "mul":
        factors = [arg for arg in node.args if not _is_positive(arg)]
        if len(factors) == 1:
            rest = [arg for arg in node.args if _is_positive(arg)]
            kept, inner = split(factors[0])
            return (kept, node) if kept is TRUE else (kept, nodes.mul(inner, *rest))
    if node.op == "div" and _is_positive(node.args[1]):
        kept, inner = split(node.args[0])
        return (kept, node) if kept is TRUE else (kept, nodes.divide(inner, node.args[1]))
    return TRUE, node


def _choice(condition: Node, then: Node, otherwise: Node) -> tuple[Node, Node]:
    kept, first = split(then)
    kept_else, second = split(otherwise)
    if kept is TRUE and kept_else is TRUE:
        return TRUE, nodes.where(condition, then, otherwise)
    if kept_else is FALSE:
        return nodes.conjunction(condition, kept), first
    if kept is FALSE:
        return nodes.conjunction(nodes.negation(condition), kept_else), second
    either = nodes.disjunction(
        nodes.conjunction(condition, kept),
        nodes.conjunction(nodes.negation(condition), kept_else),
    )
    return either, nodes.where(condition, first, second)


def _joined(node: Node) -> tuple[Node, Node]:
    """A sum or a minimum, which is -inf where one of its terms is and the others are finite."""
    parts = [split(arg) for arg in node.args]
    if all(kept is TRUE for kept, _ in parts):
        return TRUE, node
    rests = [rest for kept, rest in parts if kept is not FALSE]
    if not all(map(_is_finite, rests)):
        return TRUE, node
    kept = reduce(nodes.conjunction, [kept for kept, _ in parts])
    if kept is FALSE or not rests:
        return FALSE, nodes.const(-math.inf)
    return kept, nodes.add(*rests) if node.op == "add" else nodes.minimum(*rests)


def _is_dropped(node: Node) -> bool:
    return node.op == "const" and node.data == -math.inf


def _is_positive(node: Node) -> bool:
    return node.op == "const" and 0 < cast(float, node.data) < math.inf


def _is_finite(node: Node) -> bool:
    """Whether it is finite for all finite inputs, overflow aside."""
    if node.kind != "real" or node.op in _LEAVES:
        return True
    if node.op == "const":
        return math.isfinite(cast(float, node.data))
    if node.op == "div" and node.args[1].op == "const":
        return node.args[1].data != 0 and _is_finite(node.args[0])
    if node.op in _FINITE_OF_FINITE or (node.op == "call" and function_of(node).finite):
        return all(_is_finite(arg) for arg in node.args if arg.kind != "bool")
    return False
