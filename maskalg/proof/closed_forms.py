"""The result of a proof as formulas, which schedules evaluate and kernels render.

No SymPy here. Formulas range over `q0, q1` (first and last query of a tile), batch, head and the
slots of the structure; `step` nodes read the monotone tables of documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

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

    The box is given by the clause's bounds on q, on k and on q - k, so a tile is decided exactly.
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
    """A condition on categories f(own) and g(other): `node` reads a table of pairs at its query and
    key index, which stand for these categories; `own_index` says which stands for f."""

    node: Node
    own_index: str
    f: Node
    g: Node


@dataclass(frozen=True)
class Section:
    """A clause with one index eliminated position by position, where no closed form is exact.

    Example: `ids[q] == ids[k]` with own index "q_idx". For each key, some query between two bounds
    must have the key's id.

    For a position of the `other` index at which `others` hold, some position x of the `own` index
    with max(lows) <= x <= min(highs) must satisfy the remaining conditions. Bounds, and the second
    formula of each pair, are functions of the other index; `members` and the first formula of each
    pair are functions of the own one. A section has at most one of `order`, `distances`, `equal`
    and `relation` (but may have `equal` beside `order`); `members` go with all but `distances`.

    Attributes:
        own, other: "q_idx" and "kv_idx", or the reverse.
        lows, highs: bounds of the own index.
        others, members: conditions on the other and on the own index alone.
        equal: (f, g, holds): f(own) == g(other), or != unless `holds`.
        order: (f, g): f(own) + g(other) >= 0. Each f is the first f or its negative; so is each f
            of `equal` beside them, of which at most one has !=.
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

    An empty tuple means no bound. `exact`: some query of the tile touches each key of the span,
    provided that equal ids are contiguous in each pair of tables of `documents` (and in the same
    order, for two tables); otherwise the span is an outer bound. `residue` leaves out some tiles of
    the span, and `keys`, a condition on the key alone, some of its keys. If the span is not exact,
    `section` decides each tile exactly; without a section, `clause` is the whole condition of the
    span, evaluated tile by tile.
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
        """The bounds and guards."""
        return self.lows + self.highs + self.guards

    @property
    def decided(self) -> bool:
        """Whether every tile is decided without looking at its elements."""
        return self.section is not None or (self.exact and not self.documents)


@dataclass(frozen=True)
class ClosedForms:
    """Empty: outside every `touched` span. Full: outside every `unfull` span.

    If there are `digits`, they decide each block exactly, and the spans only enclose the kept keys.
    """

    touched: tuple[Span, ...]
    unfull: tuple[Span, ...]
    rung: str
    reasons: tuple[str, ...]
    digits: DigitForms | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of touched keys, then those of keys that are not full."""
        return self.touched + self.unfull

    @property
    def bounds(self) -> tuple[Node, ...]:
        """The bounds and guards of all spans."""
        return tuple([bound for span in self.spans for bound in span.bounds])

    @property
    def simplified(self) -> bool:
        """Whether loops over tiles get wider bounds, because there are too many spans."""
        return len(self.spans) > _MOST_SPANS

    @property
    def exact(self) -> bool:
        """Whether every empty and full tile is found without looking at its elements, provided
        that ids are contiguous where spans rely on it."""
        return self.digits is not None or all(span.exact or span.decided for span in self.spans)


class Told(NamedTuple):
    """Closed forms, also as lines of text, and the declared bounds of their parameters."""

    forms: ClosedForms
    touched: tuple[str, ...]
    unfull: tuple[str, ...]
    assumptions: tuple[str, ...]


def in_kernels(bound: Node) -> bool:
    """Whether loops over tiles get a bound; bounds with inverse tables or sets are left out."""
    return not any(
        node.op == "member" or (node.op == "step" and str(node.data).endswith("'"))
        for node in bound.walk()
    )


_RUNGS: Final = ("closed form", "token sets", "tile predicates", "summaries", "evaluation")


def last_rung(spans: tuple[Span, ...]) -> str:
    """The last step of the ladder that any of the spans needs."""
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


def keys_text(lows: Sequence[object], highs: Sequence[object]) -> str:
    """`max(lows) <= k <= min(highs)` as text."""
    (low, high) = (
        f"{name}({', '.join(map(str, side))})" if len(side) > 1 else "".join(map(str, side))
        for name, side in (("max", lows), ("min", highs))
    )
    return (f"{low} <= " if low else "") + "k" + (f" <= {high}" if high else "")


def every_key(clause: Node) -> Span:
    """The span of a formula that the proof did not split."""
    return Span((), (), (), None, exact=False, documents=(), clause=clause)
