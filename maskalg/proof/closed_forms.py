"""The result of a proof as formulas: what schedules evaluate and kernels render.

No SymPy here. Formulas range over `q0, q1` (first and last query of a tile), batch, head and the
slots of the structure; `step` nodes read the monotone tables of documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..formula.separation import positions

if TYPE_CHECKING:
    from .digits.forms import DigitForms

ROW_FIRST: Final = Node("index", "int", data="q0")
ROW_LAST: Final = Node("index", "int", data="q1")

_MOST_SPANS: Final = 16


@dataclass(frozen=True)
class Residue:
    """(q - k + offset) mod modulus is `residue` (or is not, unless `holds`), inside a box.

    The bounds are those of the clause on q, on k and on q - k; with them a tile is decided
    exactly.
    """

    offset: Node
    modulus: Node
    residue: Node
    holds: bool
    q_lows: tuple[Node, ...]
    q_highs: tuple[Node, ...]
    k_lows: tuple[Node, ...]
    k_highs: tuple[Node, ...]
    d_lows: tuple[Node, ...]
    d_highs: tuple[Node, ...]


@dataclass(frozen=True)
class Relation:
    """holds(f(own), g(other)): `node` reads tables at its query and key index, which stand here
    for the categories f and g of the own and the other position; `own_index` says which is f."""

    node: Node
    own_index: str
    f: Node
    g: Node


@dataclass(frozen=True)
class Section:
    """A clause with one index eliminated position by position, where no closed form is exact.

    For a position of the `other` index at which `others` hold, some position x of the `own` index
    with max(lows) <= x <= min(highs) must satisfy the rest. Bounds, and the second formula of each
    pair, are functions of the other index; `members` and the first formula of each pair are
    functions of the own one. There is one kind of rest at most: `order`, `distances`, `equal` or
    `relation` (`equal` also beside `order`); `members` go with `order`, `equal` and `relation`.

    Attributes:
        own, other: "q_idx" and "kv_idx", or the reverse.
        lows, highs: bounds of the own index.
        others, members: conditions on the other and on the own index alone.
        equal: (f, g, holds): f(own) == g(other), or != where not `holds`.
        order: (f, g): f(own) + g(other) >= 0; each f is the first one or minus the first one;
            beside them so is each f of `equal`, with one != at most.
        distances: conditions on the distance q - k alone.
        relation: a condition on the categories of both positions.
    """

    own: str
    other: str
    lows: tuple[Node, ...]
    highs: tuple[Node, ...]
    others: tuple[Node, ...]
    members: tuple[Node, ...]
    equal: tuple[tuple[Node, Node, bool], ...]
    order: tuple[tuple[Node, Node], ...]
    distances: tuple[Node, ...]
    relation: Relation | None


@dataclass(frozen=True)
class Span:
    """The keys `max(lows) <= k <= min(highs)` of a query tile, when every guard is >= 0.

    An empty tuple is no bound. `exact` says that each key in it is touched by some query of the
    tile, provided that equal ids are contiguous in each pair of tables of `documents` (for two
    tables, and in the same order); otherwise the span is an outer bound. `residue` thins the
    tiles inside it further, and `keys`, a condition on the key alone, thins its keys. `section`
    decides exactly where the span does not; where there is none, `clause` is all the span stands
    for, to be looked at tile by tile.
    """

    lows: tuple[Node, ...]
    highs: tuple[Node, ...]
    guards: tuple[Node, ...]
    residue: Residue | None
    exact: bool
    documents: tuple[tuple[Slot, Slot], ...]
    keys: Node | None = None
    section: Section | None = None
    clause: Node | None = None

    @property
    def bounds(self) -> tuple[Node, ...]:
        """Its bounds and guards."""
        return self.lows + self.highs + self.guards

    @property
    def decided(self) -> bool:
        """Whether every tile is decided without looking at its elements."""
        return self.section is not None or (self.exact and not self.documents)


@dataclass(frozen=True)
class ClosedForms:
    """Empty: outside every `touched` span. Full: outside every `unfull` span.

    Where `digits` are there, they decide each block exactly, and the spans only enclose what is
    kept.
    """

    touched: tuple[Span, ...]
    unfull: tuple[Span, ...]
    rung: str
    reasons: tuple[str, ...]
    digits: DigitForms | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """Those of touched keys, then those of keys that are not full."""
        return self.touched + self.unfull

    @property
    def bounds(self) -> tuple[Node, ...]:
        """The bounds and guards of all spans."""
        return tuple([bound for span in self.spans for bound in span.bounds])

    @property
    def simplified(self) -> bool:
        """Whether loops over tiles are given wider bounds, as there are too many spans."""
        return len(self.spans) > _MOST_SPANS

    @property
    def exact(self) -> bool:
        """Whether every empty and full tile is found without looking at its elements, provided
        that ids are contiguous where spans rely on it."""
        return self.digits is not None or all(span.exact or span.decided for span in self.spans)


def in_kernels(bound: Node) -> bool:
    """Whether loops over tiles are given a bound; those on inverse tables and sets are left out."""
    return not any(
        node.op == "member" or (node.op == "step" and str(node.data).endswith("'"))
        for node in bound.walk()
    )


_RUNGS: Final = ("closed form", "token sets", "tile predicates", "summaries", "evaluation")


def last_rung(spans: tuple[Span, ...]) -> str:
    """The last step of the ladder that some of the spans need."""
    return max(map(_rung_of, spans), key=_RUNGS.index, default=_RUNGS[0])


def _rung_of(span: Span) -> str:
    """The step of the ladder that decides the last tiles of a span."""
    if not span.exact:
        if span.section is not None:
            return "tile predicates"
        parts = () if span.clause is None else span.clause.walk()
        entries = any(n.op in ("read", "opaque") and len(positions(n)) == 2 for n in parts)
        return "evaluation" if entries else "summaries"
    if span.keys is not None or any(n.op == "member" for b in span.bounds for n in b.walk()):
        return "token sets"
    return "closed form" if span.residue is None else "tile predicates"


def every_key(clause: Node) -> Span:
    """The span of a formula that the proof has not taken apart."""
    return Span((), (), (), None, exact=False, documents=(), clause=clause)
