"""Laws of the members of a set that a certificate may use (`schedule/positions/sets.py`).

For a tile q0..q1 of queries, all of them positions of the set:

- next(x) >= x, or next(x) > q1;  previous(x) <= x, or previous(x) < 0
- a member y in the tile with y >= x gives next(x) <= y; one with y <= x gives previous(x) >= y
- next(x) <= q1 gives that next(x) is a member; previous(x) >= 0 gives that previous(x) is
- the same of a member y that is itself previous(z) >= 0 or next(z) <= q1
- x <= y gives next(x) <= next(y) and previous(x) <= previous(y)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...formula import nodes
from ...formula.nodes import Node
from ..symbols import ROW_FIRST, ROW_LAST
from .arithmetic import Any_, Condition, NotNegative

if TYPE_CHECKING:
    from .encoding import Encoder


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
