"""Laws that a certificate may use: of the tables of documents, and of the members of a set.

The tables of documents are monotone. They are those of `schedule/intervals/steps.py`.

- x <= y gives t(x) <= t(y), for each table t
- equal ids at query x and key y give first(x) <= y <= last(x)
- different ids at query x and key y give y < start(x) or end(x) < y
- where queries and keys read one tensor: first(x) <= x <= last(x), start(x) <= x <= end(x)
- first(x) <= y is x <= last'(y), and last(x) >= y is x >= first'(y), the prime meaning tables from
  keys to queries (the same tables, where both read one tensor); start and end likewise

And of contiguous ones, where equal ids are contiguous (and in the same order, for two tensors),
that start is first and end is last. Where no declaration says so, each call looks whether they are.

They hold for positions inside of the tables. `extents.py` refuses calls with others, unless an
entry of a tensor or a repeated index stands in the position. Reads there are clamped: of a query
moved like that only the first three laws are assumed, and of such a key nothing.

Members of a set (`schedule/positions/sets.py`): for a tile q0..q1 of queries, all of them positions
of the set:

- next(x) >= x, or next(x) > q1;  previous(x) <= x, or previous(x) < 0
- a member y in the tile with y >= x gives next(x) <= y; one with y <= x gives previous(x) >= y
- next(x) <= q1 gives that next(x) is a member; previous(x) >= 0 gives that previous(x) is
- the same of a member y that is itself previous(z) >= 0 or next(z) <= q1
- x <= y gives next(x) <= next(y) and previous(x) <= previous(y)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ...formula import nodes
from ...formula.conditions import Any_, Condition, NotNegative
from ...formula.nodes import Node
from ..closed_forms import ROW_FIRST, ROW_LAST

if TYPE_CHECKING:
    from .encoding import Encoder


@dataclass(frozen=True)
class StepTerm:
    """A table read: `node` is the formula, `value` its unknown, `position` where it is read."""

    node: Node
    value: Any
    position: Any

    @property
    def family(self) -> str:
        """Reads of one table, of one pair of tensors, in one batch entry."""
        return self.family_of(cast(str, self.node.data))

    def family_of(self, table: str) -> str:
        """The family of another table of the same pair."""
        own = " ".join(str(parameter.identity) for parameter in self.node.own)
        leading = " ".join(arg.canonical for arg in self.node.args[:-1])
        return f"{table} {own} {leading}"


_PARTNER: Final = {"first": "last", "start": "end"}
_CONTIGUOUS: Final = {"start": "first", "end": "last", "start'": "first'", "end'": "last'"}


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

    def queries(self) -> list[Node]:
        """The first and last query that may have the key's id, moved as the query is."""
        own = self.of_query.own[0] is self.of_key.own[0]
        leading = self.of_query.args[:-1] or self.of_key.args[:-1]
        slots = (*self.of_query.own, *self.of_key.own)
        offset = without_query(self.of_query.args[-1])
        if offset is None:
            return []
        names = ("first", "last") if own else ("first'", "last'")
        steps = [
            Node("step", "int", (*leading, self.of_key.args[-1]), name, slots) for name in names
        ]
        return [nodes.subtract(step, offset) for step in steps]


def without_query(position: Node) -> Node | None:
    """The offset in `q_idx + offset`."""
    terms = position.args if position.op == "add" else (position,)
    rest = [term for term in terms if term != nodes.Q]
    if len(rest) != len(terms) - 1 or any("q_idx" in term.indices() for term in rest):
        return None
    return nodes.add(*rest)


def same_document(node: Node) -> SameDocument | None:
    """An equality of an entry at a query and an entry at a key, else None.

    Real entries are no ids: they are rounded to be compared, and may be NaN.
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
        if not _inside(of_key.args[-1]):
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


def contiguous(step: Node) -> Node:
    """The table that a read of `start` or `end` equals where ids are contiguous."""
    name = _CONTIGUOUS.get(cast(str, step.data))
    return step if name is None else Node("step", "int", step.args, name, step.own)


def inverses(terms: list[StepTerm]) -> list[Condition]:
    """first(x) <= y <=> x <= last'(y), and last(y) >= x <=> y >= first'(x)."""
    laws: list[Condition] = []
    for low in terms:
        name = cast(str, low.node.data)
        partner = _PARTNER.get(name.rstrip("'"))
        if partner is None or not _inside(low.node.args[-1]):
            continue
        own = low.node.own[0] is low.node.own[1]
        wanted = partner if own or name.endswith("'") else partner + "'"
        for high in terms:
            if high.family == low.family_of(wanted) and _inside(high.node.args[-1]):
                below, within = high.position - low.value, high.value - low.position
                laws.append(Any_((NotNegative(-below - 1), NotNegative(within))))
                laws.append(Any_((NotNegative(below), NotNegative(-within - 1))))
    return laws


def own_places(terms: list[StepTerm]) -> list[Condition]:
    """The place of x itself among the tables, where queries and keys read one tensor."""
    laws: list[Condition] = []
    for term in terms:
        q_slot, kv_slot = term.node.own
        if q_slot is kv_slot and _inside(term.node.args[-1]):
            gap = term.value - term.position
            laws.append(NotNegative(gap if term.node.data in ("last", "end") else -gap))
    return laws


def _inside(position: Node) -> bool:
    """Whether every call has this position checked against the length of the table.

    A query that a certificate proposes is one of several, among them an end of the tile.
    """
    proposed = next((n for n in position.walk() if _is_proposal(n)), None)
    if proposed is not None:
        several = (nodes.substitute(position, {proposed: arg}.get) for arg in proposed.args)
        return all(map(_inside, several))
    names = [node.data for node in position.walk() if node.op == "index"]
    return len(names) == len(set(names)) and all(node.op != "read" for node in position.walk())


def _is_proposal(node: Node) -> bool:
    return node.op in ("max", "min") and not {ROW_FIRST, ROW_LAST}.isdisjoint(node.args)


@dataclass(frozen=True)
class MemberTerm:
    """The next or previous member of a set: the formula, its unknown, and from where."""

    node: Node
    value: Any
    position: Any

    @property
    def family(self) -> str:
        return f"{self.node.data} {self.node.args[0].canonical}"


def member_laws(terms: list[MemberTerm], encoder: Encoder) -> list[Condition]:
    """The laws for these terms, with the query of the encoder as the member y."""
    q, q0, q1 = (encoder.term(index) for index in (nodes.Q, ROW_FIRST, ROW_LAST))
    laws: list[Condition] = []
    for term in terms:
        formula, value, x = term.node.args[0], term.value, term.position
        in_tile = [NotNegative(q0 - q - 1), NotNegative(q - q1 - 1)]
        away = [*in_tile, encoder.condition(formula, False)]
        member = encoder.condition(nodes.substitute(formula, {nodes.Q: term.node}.get))
        if term.node.data == "next":
            laws.append(Any_((NotNegative(value - x), NotNegative(value - q1 - 1))))
            laws.append(Any_((*away, NotNegative(x - q - 1), NotNegative(q - value))))
            laws.append(Any_((NotNegative(value - q1 - 1), member)))
        else:
            laws.append(Any_((NotNegative(x - value), NotNegative(-1 - value))))
            laws.append(Any_((*away, NotNegative(q - x - 1), NotNegative(value - q))))
            laws.append(Any_((NotNegative(-1 - value), member)))
    for after in (term for term in terms if term.node.data == "next"):
        for before in (term for term in terms if term.node.data == "previous"):
            if after.node.args[0] == before.node.args[0]:
                in_order = NotNegative(before.value - after.value)
                beyond = NotNegative(after.value - q1 - 1)
                laws.append(
                    Any_((beyond, NotNegative(after.value - before.position - 1), in_order))
                )
                none = NotNegative(-1 - before.value)
                laws.append(Any_((none, NotNegative(after.position - before.value - 1), in_order)))
    return laws
