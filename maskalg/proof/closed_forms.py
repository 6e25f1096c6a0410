"""The result of a proof as formulas: what schedules evaluate and kernels render.

No SymPy here. Formulas range over `q0, q1` (first and last query of a tile), batch, head and the
slots of the structure; `step` nodes read the monotone tables of documents.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..nodes import Node
from ..parameters import Slot
from .grid_forms import GridForms


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
class Span:
    """The keys `max(lows) <= k <= min(highs)` of a query tile, when every guard is >= 0.

    An empty tuple is no bound. `exact` says that each key in it is touched by some query of the
    tile, provided that equal ids are contiguous in each pair of tables of `documents` (for two
    tables, and in the same order); otherwise the span is an outer bound. `residue` thins the
    tiles inside it further.
    """

    lows: tuple[Node, ...]
    highs: tuple[Node, ...]
    guards: tuple[Node, ...]
    residue: Residue | None
    exact: bool
    documents: tuple[tuple[Slot, Slot], ...]


@dataclass(frozen=True)
class ClosedForms:
    """Empty: outside every `touched` span. Full: outside every `unfull` span.

    Where `grid` is there, it decides each block exactly, and the spans only enclose what it keeps.
    """

    touched: tuple[Span, ...]
    unfull: tuple[Span, ...]
    rung: str
    reasons: tuple[str, ...]
    grid: GridForms | None = None

    @property
    def exact(self) -> bool:
        return self.grid is not None or all(span.exact for span in self.touched + self.unfull)


EVERY_KEY = Span((), (), (), None, exact=False, documents=())
