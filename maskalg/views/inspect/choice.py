"""The batch entry and the head of an expression that a picture shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch

from ... import errors
from ...formula import nodes
from ...formula.expression import Expression
from ...formula.nodes import Node
from ...formula.parameters import Table, whole_number

Expr = TypeVar("Expr", bound=Expression)


@dataclass(frozen=True)
class Choice:
    """A batch entry and a head, counted from 0; 0 also stands for the only one."""

    entry: int = 0
    head: int = 0

    def notes(self, expression: Expression) -> tuple[str, ...]:
        """Notes for a reader, such as "head 1 of 8", for indices that the expression depends on."""
        notes = []
        batches, heads = (_told(expression, name) for name in ("batch", "head"))
        if batches > 1 or _stands_bare(expression, "batch"):
            notes.append(f"batch entry {self.entry}" + (f" of {batches}" if batches > 1 else ""))
        if any("head" in node.indices() for node in _formulas(expression)):
            notes.append(f"head {self.head}" + (f" of {heads}" if heads > 1 else ""))
        return tuple(notes)

    def within(self, expression: Expression) -> Choice:
        """The choice; indices that the expression does not depend on become 0."""
        read = frozenset().union(*[node.indices() for node in _formulas(expression)])
        return Choice(self.entry if "batch" in read else 0, self.head if "head" in read else 0)

    def check(self, call: str, *expressions: Expression) -> None:
        """Raise if the expressions have no such batch entry or head."""
        formulas = [node for expression in expressions for node in _formulas(expression)]
        for name, index, value in (("entry", "batch", self.entry), ("head", "head", self.head)):
            whole_number(call, name, value, 0)
            if value and all(index not in node.indices() for node in formulas):
                of = "head" if name == "head" else "batch entry"
                raise errors.MaskValueError(
                    f"{call}({name}={value}): {expressions[-1]!r} is the same for every {of}. "
                    f"Leave {name} out."
                )
            count = max(_told(expression, index) for expression in expressions)
            if count > 1 and value >= count:
                raise errors.MaskValueError(
                    f"{call}: {name} must be below {count}, which the tensors bound to it have; "
                    f"got {value}."
                )


def parts_of(score: Expression) -> tuple[Expression, Expression]:
    """The mask and the bias of a score."""
    whole = cast(Any, score)
    return whole.mask, whole.bias


def _formulas(expression: Expression) -> tuple[Node, Node]:
    return expression.mask_node, expression.bias_node


def _reads(expression: Expression) -> list[Node]:
    return [n for formula in _formulas(expression) for n in formula.walk() if n.op == "read"]


def _told(expression: Expression, index: str) -> int:
    """The largest size of the tables along `index`; 1 serves all, 0 if no table is read at it."""
    sizes = [
        node.own[0].tensor.shape[axis]
        for node in _reads(expression)
        for axis, arg in enumerate(node.args)
        if arg.op == "index" and arg.data == index and isinstance(node.own[0], Table)
    ]
    return max(sizes, default=0)


def _stands_bare(expression: Expression, index: str) -> bool:
    """Whether the formula uses `index` other than to read tables at it."""
    every = sum(
        n.op == "index" and n.data == index for f in _formulas(expression) for n in f.walk()
    )
    at_axes = sum(
        arg.op == "index" and arg.data == index for n in _reads(expression) for arg in n.args
    )
    return every > at_axes


def one_entry(expression: Expr, choice: Choice) -> Expr:
    """The expression with its batch and head index put in; `choice` was checked.

    A table of which only this entry is read is cut to it, so that documents of a batch entry are
    proved as documents.
    """
    at = {"batch": choice.entry, "head": choice.head}
    formulas = _formulas(expression)
    if not any(node.indices() & set(at) for node in formulas):
        return expression
    cut = _cut([node for formula in formulas for node in formula.walk()], at)

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

    mask, bias = (nodes.substitute(formula, replaced) for formula in formulas)
    return type(expression)(mask, bias, expression.label)


def _cut(found: list[Node], at: dict[str, int]) -> dict[Table, Table]:
    """The tables of which only one entry is read, each with that entry as a table."""
    axes: dict[Table, set[tuple[str | None, ...]]] = {}
    for node in found:
        if node.op in ("read", "extent"):
            # A read of a table's size needs the whole table.
            named = tuple(_names(arg, at) for arg in node.args) if node.op == "read" else ()
            axes.setdefault(cast(Table, node.own[0]), set()).add(named)
    parts: dict[tuple[object, ...], torch.Tensor] = {}
    cut = {}
    for table, ways in axes.items():
        (way, *others) = ways
        if others or not any(way) or all(way) or 0 in table.tensor.shape:
            continue
        # Tables of one tensor stay one tensor, as ids of queries and keys are.
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
    """The batch or head index, if the node is one."""
    return node.data if node.op == "index" and node.data in at else None
