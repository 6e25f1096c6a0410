"""Bias formulas for the CPU backend, split at the score.

A *field* is a part of a bias that does not read the score, such as `slopes[head] * (k - q)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch

from ...engine.normal_form import Structure
from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Slot, Table


@dataclass(frozen=True)
class Formulas:
    """Mask and bias of a structure, prepared.

    Attributes:
        mask: the mask.
        bias: the bias with field i replaced by a read, without indices, of slot `slots + i`.
        fields: the parts of the bias that do not read the score.
        additive: the bias is the score, or the score plus the only field.
    """

    mask: Node
    bias: Node
    fields: tuple[Node, ...]
    additive: bool


@lru_cache(maxsize=1024)
def formulas(structure: Structure) -> Formulas:
    """The prepared formulas of a structure."""
    found: list[Node] = []
    bias = _split(structure.bias, found, len(structure.slots))
    only = nodes.add(nodes.SCORE, _placeholder(len(structure.slots)))
    additive = bias.op == "score" or (len(found) == 1 and bias == only)
    return Formulas(structure.mask, bias, tuple(found), additive)


def differentiated(structure: Structure, tables: tuple[int, ...]) -> tuple[Node, tuple[Node, ...]]:
    """The bias with each read of a table in `tables` replaced by a read without indices.

    Read i becomes slot `slots + i`: a tensor of its own for autograd, whose gradient is added to
    the table in an order that does not depend on threads.
    """
    found: list[Node] = []

    def replaced(node: Node) -> Node | None:
        if node.op != "read" or cast(Slot, node.own[0]).index not in tables:
            return None
        if node not in found:
            found.append(node)
        return _placeholder(len(structure.slots) + found.index(node))

    return nodes.substitute(structure.bias, replaced), tuple(found)


def _split(node: Node, found: list[Node], first: int) -> Node:
    """The formula with its largest parts that do not read the score put into `found`."""
    if node.op == "score" or (node.op in ("const", "scalar")):
        return node
    if "score" not in node.ops():
        found.append(node)
        return _placeholder(first + len(found) - 1)
    args = node.args
    if node.op == "add":
        scored = [arg for arg in args if "score" in arg.ops()]
        rest = [arg for arg in args if "score" not in arg.ops()]
        args = (*scored, nodes.add(*rest)) if rest else tuple(scored)
    return nodes.rebuild(node, tuple([_split(arg, found, first) for arg in args]))


def _placeholder(index: int) -> Node:
    """A read of the whole tensor at `index` of the values."""
    return nodes.read(Slot(index, "field", Table("field", torch.empty(0))))
