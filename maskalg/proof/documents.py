"""Comparisons of document ids in masks, and reads of their tables."""

from __future__ import annotations

from dataclasses import dataclass

from ..formula import nodes
from ..formula.nodes import Node
from .closed_forms import ROW_FIRST, ROW_LAST


@dataclass(frozen=True)
class SameDocument:
    """A comparison of ids: the read at a query and the read at a key."""

    of_query: Node
    of_key: Node

    def table(self, name: str, at: Node | None = None) -> Node:
        """The table `name` at a position, by default the query's."""
        leading = self.of_query.args[:-1] or self.of_key.args[:-1]
        own = (*self.of_query.own, *self.of_key.own)
        position = self.of_query.args[-1] if at is None else at
        return Node("step", "int", (*leading, position), name, own)

    def queries(self) -> list[Node]:
        """The first and last query whose id may equal the key's, less the offset of the query."""
        own = self.of_query.own[0] is self.of_key.own[0]
        offset = without_query(self.of_query.args[-1])
        if offset is None:
            return []
        names = ("first", "last") if own else ("first'", "last'")
        key = self.of_key.args[-1]
        return [nodes.subtract(self.table(name, key), offset) for name in names]


def without_query(position: Node) -> Node | None:
    """`offset`, from `q_idx + offset`."""
    terms = position.args if position.op == "add" else (position,)
    rest = [term for term in terms if term != nodes.Q]
    if len(rest) != len(terms) - 1 or any("q_idx" in term.indices() for term in rest):
        return None
    return nodes.add(*rest)


def same_document(node: Node) -> SameDocument | None:
    """An equality of an entry at a query and an entry at a key, else None.

    Real entries are not ids: comparisons round them, and they may be NaN.
    """
    if any(arg.op != "read" or not arg.args or arg.kind == "real" for arg in node.args):
        return None
    leading = [index for arg in node.args for index in arg.args[:-1]]
    if any(arg.op != "index" or arg.data not in ("batch", "head") for arg in leading):
        return None
    if len({arg.data for arg in leading}) > 1:
        return None
    for of_query, of_key in (node.args, node.args[::-1]):
        q_side, k_side = _side(of_query.args[-1]), _side(of_key.args[-1])
        # With one tensor the tables serve both directions.
        own = of_query.own[0] is of_key.own[0] and of_query.args[:-1] == of_key.args[:-1]
        if not inside(of_key.args[-1]):
            continue
        if k_side == "key" and (q_side == "query" or own):
            return SameDocument(of_query, of_key)
    return None


def _side(position: Node) -> str:
    """Whether a position is one of keys, or of queries, among them those computed from a key."""
    if any(node.op in ("step", "member") for node in position.walk()):
        return "query"
    reading = position.indices() & {"q_idx", "q0", "q1", "kv_idx"}
    return {frozenset({"kv_idx"}): "key", frozenset(): "none"}.get(reading, "query")


def inside(position: Node) -> bool:
    """Whether every call checks this position against the length of the table.

    A certificate proposes queries such as max(q0, x): then each argument has to be checked.
    """
    proposed = next((n for n in position.walk() if _is_proposal(n)), None)
    if proposed is not None:
        several = (nodes.substitute(position, {proposed: arg}.get) for arg in proposed.args)
        return all(map(inside, several))
    names = [node.data for node in position.walk() if node.op == "index"]
    return len(names) == len(set(names)) and all(node.op != "read" for node in position.walk())


def _is_proposal(node: Node) -> bool:
    return node.op in ("max", "min") and not {ROW_FIRST, ROW_LAST}.isdisjoint(node.args)
