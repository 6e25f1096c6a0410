"""Bias formulas for the CPU backend: split at the score, and checked for dependence on distances.

A *field* is a part of a bias that does not read the score, such as `slopes[head] * (k - q)`. Like
a mask, it depends on the indices alone. If it depends on q and k only through their difference,
tiles at the same distance share its values.
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
from ...formula.separation import by_distance


@dataclass(frozen=True)
class Field:
    """A formula of the indices alone.

    Attributes:
        by_distance: it reads q and k only through q - k.
        of_members: it reads the batch or the head.
    """

    formula: Node
    by_distance: bool
    of_members: bool


@dataclass(frozen=True)
class Formulas:
    """Mask and bias of a structure, prepared.

    Attributes:
        mask: the mask.
        bias: the bias with field i replaced by a read, without indices, of slot `slots + i`.
        fields: the parts of the bias that do not read the score.
        additive: the bias is the score, or the score plus the only field.
        together: the joint dependence of mask and fields.
    """

    mask: Field
    bias: Node
    fields: tuple[Field, ...]
    additive: bool
    together: Field


@lru_cache(maxsize=1024)
def formulas(structure: Structure) -> Formulas:
    """The prepared formulas of a structure."""
    found: list[Node] = []
    bias = _split(structure.bias, found, len(structure.slots))
    only = nodes.add(nodes.SCORE, _placeholder(len(structure.slots)))
    additive = bias.op == "score" or (len(found) == 1 and bias == only)
    mask, fields = _field(structure.mask), tuple([_field(formula) for formula in found])
    parts = (mask, *fields)
    together = Field(
        structure.mask,
        by_distance=all(part.by_distance for part in parts),
        of_members=any(part.of_members for part in parts),
    )
    return Formulas(mask, bias, fields, additive, together)


def _field(formula: Node) -> Field:
    return Field(formula, by_distance(formula), bool(formula.indices() & {"batch", "head"}))


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
