"""What a certificate may assume of the monotone tables of documents (see `schedule/steps.py`).

- x <= y gives t(x) <= t(y), for each table t
- equal ids at query x and key y give first(x) <= y <= last(x)
- different ids at query x and key y give y < start(x) or end(x) < y
- where queries and keys read one tensor: first(x) <= x <= last(x), start(x) <= x <= end(x)

They hold for positions inside of the tables. `extents.py` refuses calls with others, unless an
entry of a tensor or a repeated index stands in the position; nothing is assumed of such reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..nodes import Node
from .arithmetic import AtLeastZero, Condition


@dataclass(frozen=True)
class StepTerm:
    """A table read: `node` is the formula, `value` its unknown, `position` where it is read."""

    node: Node
    value: Any
    position: Any

    @property
    def family(self) -> str:
        """Reads of one table, of one pair of tensors, in one batch entry."""
        own = " ".join(str(parameter.identity) for parameter in self.node.own)
        leading = " ".join(arg.canonical for arg in self.node.args[:-1])
        return f"{self.node.data} {own} {leading}"


@dataclass(frozen=True)
class SameDocument:
    """Reads of ids at a query and at a key that a mask compares."""

    of_query: Node
    of_key: Node

    def table(self, name: str) -> Node:
        """The table `name` at the query's position."""
        leading = self.of_query.args[:-1] or self.of_key.args[:-1]
        own = (*self.of_query.own, *self.of_key.own)
        return Node("step", "int", (*leading, self.of_query.args[-1]), name, own)


def same_document(node: Node) -> SameDocument | None:
    """An equality of an entry at the query and an entry at the key, else None."""
    if any(arg.op != "read" or not arg.args or not _inside(arg.args[-1]) for arg in node.args):
        return None
    for of_query, of_key in (node.args, node.args[::-1]):
        q_side, k_side = of_query.args[-1].indices(), of_key.args[-1].indices()
        leading = of_query.args[:-1] + of_key.args[:-1]
        if any(arg.op != "index" or arg.data not in ("batch", "head") for arg in leading):
            continue
        if len({arg.data for arg in leading}) > 1:
            continue
        if (
            "q_idx" in q_side
            and "kv_idx" in k_side
            and not ("kv_idx" in q_side or "q_idx" in k_side)
        ):
            return SameDocument(of_query, of_key)
    return None


def own_places(terms: list[StepTerm]) -> list[Condition]:
    """The place of x itself among the tables, where queries and keys read one tensor."""
    laws: list[Condition] = []
    for term in terms:
        q_slot, kv_slot = term.node.own
        if q_slot is kv_slot and _inside(term.node.args[-1]):
            gap = term.value - term.position
            laws.append(AtLeastZero(gap if term.node.data in ("last", "end") else -gap))
    return laws


def _inside(position: Node) -> bool:
    """Whether every call has this position checked against the length of the table."""
    names = [node.data for node in position.walk() if node.op == "index"]
    return len(names) == len(set(names)) and all(node.op != "read" for node in position.walk())
