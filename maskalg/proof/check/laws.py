"""Laws that a certificate may use: about tables of documents and members of a set.

The tables of documents are monotone. They are those of `schedule/intervals/steps.py`.

- x <= y gives t(x) <= t(y), for each table t
- equal ids at query x and key y give first(x) <= y <= last(x)
- different ids at query x and key y give y < start(x) or end(x) < y
- where queries and keys read one tensor: first(x) <= x <= last(x), start(x) <= x <= end(x)
- first(x) <= y <=> x <= last'(y), and last(x) >= y <=> x >= first'(y); primed tables go from keys
  to queries (and are the same tables, where both read one tensor); start and end likewise

If equal ids are contiguous (and in the same order, for two tensors), start = first and end = last.
Unless ids are declared contiguous, each call tests whether they are.

The laws hold for positions inside of the tables. `extents.py` refuses calls with others, unless the
position depends on an entry of a tensor or repeats an index; then reads are clamped. For a query
moved like that only the first three laws are assumed, and for such a key none.

Members of a set (`schedule/positions/sets.py`): for a tile q0..q1 of queries, all of them positions
of the set:

- next(x) >= x, or next(x) > q1;  previous(x) <= x, or previous(x) < 0
- a member y in the tile with y >= x gives next(x) <= y; one with y <= x gives previous(x) >= y
- if next(x) <= q1, it is a member; if previous(x) >= 0, it is a member
- the same for a member y that is itself previous(z) >= 0 or next(z) <= q1
- x <= y gives next(x) <= next(y) and previous(x) <= previous(y)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ...formula import nodes
from ...formula.laws import Any_, Condition, NotNegative
from ...formula.nodes import Node
from ..closed_forms import ROW_FIRST, ROW_LAST
from ..documents import inside

if TYPE_CHECKING:
    from .encoding import Encoder


@dataclass(frozen=True)
class Lookup:
    """A read of a table ("step"), or the next or previous member of a set ("member"): its formula
    `node`, its unknown `value`, and the `position` it starts from."""

    node: Node
    value: Any
    position: Any

    @property
    def family(self) -> str:
        """The monotone function: one table of one pair of tensors in one batch entry, or the next
        or previous member of one set."""
        if self.node.op == "member":
            return f"{self.node.data} {self.node.args[0].canonical}"
        return self.family_of(cast(str, self.node.data))

    def family_of(self, table: str) -> str:
        """The family of another table of the same pair."""
        own = " ".join(str(parameter.identity) for parameter in self.node.own)
        leading = " ".join(arg.canonical for arg in self.node.args[:-1])
        return f"{table} {own} {leading}"


_PARTNER: Final = {"first": "last", "start": "end"}
_CONTIGUOUS: Final = {"start": "first", "end": "last", "start'": "first'", "end'": "last'"}


def contiguous(step: Node) -> Node:
    """The read of `first` (`last`) that equals one of `start` (`end`) if ids are contiguous."""
    name = _CONTIGUOUS.get(cast(str, step.data))
    return step if name is None else Node("step", "int", step.args, name, step.own)


def inverses(terms: list[Lookup]) -> list[Condition]:
    """first(x) <= y <=> x <= last'(y), and last(y) >= x <=> y >= first'(x)."""
    laws: list[Condition] = []
    for low in terms:
        name = cast(str, low.node.data)
        partner = _PARTNER.get(name.rstrip("'"))
        if partner is None or not inside(low.node.args[-1]):
            continue
        own = low.node.own[0] is low.node.own[1]
        wanted = partner if own or name.endswith("'") else partner + "'"
        for high in terms:
            if high.family == low.family_of(wanted) and inside(high.node.args[-1]):
                below, within = high.position - low.value, high.value - low.position
                laws.append(Any_((NotNegative(-below - 1), NotNegative(within))))
                laws.append(Any_((NotNegative(below), NotNegative(-within - 1))))
    return laws


def own_places(terms: list[Lookup]) -> list[Condition]:
    """first(x) <= x <= last(x), likewise start and end, where queries and keys read one tensor."""
    laws: list[Condition] = []
    for term in terms:
        q_slot, kv_slot = term.node.own
        if q_slot is kv_slot and inside(term.node.args[-1]):
            gap = term.value - term.position
            laws.append(NotNegative(gap if term.node.data in ("last", "end") else -gap))
    return laws


def member_laws(terms: list[Lookup], encoder: Encoder) -> list[Condition]:
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
