"""One batch entry and head of a mask, as a mask of its own."""

from __future__ import annotations

from typing import cast

import torch

from ...formula import nodes
from ...formula.expression import Expression
from ...formula.nodes import Node
from ...formula.parameters import Table
from .choice import Choice


def one_entry(mask: Expression, choice: Choice) -> Expression:
    """The mask with its batch and head index put in; `choice` was checked.

    Tables are cut down to the entry where all that is read of them is, so that documents of a
    batch entry are proved as documents.
    """
    at = {"batch": choice.entry, "head": choice.head}
    if not mask.mask_node.indices() & set(at):
        return mask
    cut = _cut(mask.mask_node, at)

    def replaced(node: Node) -> Node | None:
        if node.op == "index" and node.data in at:
            return nodes.const(at[node.data])
        if node.op != "read":
            return None
        table = cast(Table, node.own[0])
        args = []
        for arg, size in zip(node.args, table.tensor.shape, strict=True):
            name = _names(arg, at)
            if name is None:
                args.append(nodes.substitute(arg, replaced))
            elif table not in cut:
                # A table of one entry there has it for all.
                args.append(nodes.const(min(at[name], max(size, 1) - 1)))
        return Node("read", node.kind, tuple(args), own=(cut.get(table, table),))

    return type(mask)(nodes.substitute(mask.mask_node, replaced), mask.bias_node, mask.label)


def _cut(formula: Node, at: dict[str, int]) -> dict[Table, Table]:
    """The tables of which only one entry is read, and what is left of each."""
    axes: dict[Table, set[tuple[str | None, ...]]] = {}
    for node in formula.walk():
        if node.op in ("read", "extent"):
            # The size of a table is another question than its entries.
            named = tuple(_names(arg, at) for arg in node.args) if node.op == "read" else ()
            axes.setdefault(cast(Table, node.own[0]), set()).add(named)
    parts: dict[tuple[object, ...], torch.Tensor] = {}
    cut = {}
    for table, ways in axes.items():
        (way, *others) = ways
        if others or not any(way) or all(way) or 0 in table.tensor.shape:
            continue
        # A tensor stays one tensor: queries and keys of the same documents.
        left = parts.get((id(table.tensor), way))
        if left is None:
            left = table.tensor
            for axis, name in reversed(list(enumerate(way))):
                if name is not None:
                    left = left.select(axis, min(at[name], left.shape[axis] - 1))
            parts[id(table.tensor), way] = left
        order = table.order if way[-1] is None else None
        cut[table] = Table(table.name, left, table.low, order)
    return cut


def _names(node: Node, at: dict[str, int]) -> str | None:
    """The batch or head index, where the node is just that."""
    return node.data if node.op == "index" and node.data in at else None
