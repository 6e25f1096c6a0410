"""The tiles that kernels of a canvas visit, as tables for the page.

Where positions meet digit by digit the closed forms of whole intervals are wide, and what is
visited follows from boxes of digits. The page does not compute those: it is given the segments for
the numbers that are bound, for tiles of one side, and joins them to larger tiles.
"""

from __future__ import annotations

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound, transposed
from ...schedule.rung import rung_of
from ...schedule.tiling import Tiling
from .. import messages
from .tables import Record, table_record

_FINE, _COARSE = 32, 128
_FINELY_UPTO = 1 << 16
_MOST_TILES = 1 << 17


def visits(form: Bound, extents: Extents) -> dict[str, object] | None:
    """Segments of tiles of rows and of columns, or None where the closed forms tell them.

    `block` is the side of the tiles. Of `rows`, whose tiles are of queries, and `columns`, whose
    tiles are of keys: `shape` (batch, heads, tiles), and for the segments of a tile, which follow
    each other, how many there are (`count`), their first tile and length, and which are full.
    """
    exchanged = Bound(transposed(form.structure), form.values)
    turned = Extents(extents.kv_len, extents.q_len, extents.batch, extents.heads)
    block = _FINE if max(extents.q_len, extents.kv_len) <= _FINELY_UPTO else _COARSE
    tiles = max(extents.q_len, extents.kv_len) // block
    if rung_of(form.structure).on_host == "digits" and tiles > _MOST_TILES:
        raise messages.page_too_long(_MOST_TILES * block)
    sides = {"rows": (form, extents), "columns": (exchanged, turned)}
    found = {name: _segments(*side, block) for name, side in sides.items()}
    return {"block": block, **found} if any(found.values()) else None


def _segments(form: Bound, extents: Extents, block: int) -> dict[str, object] | None:
    rung = rung_of(form.structure)
    if rung.on_host != "digits":
        return None
    runs = rung.runs(Tiling(form, extents, (block, block)))
    tables: dict[str, torch.Tensor] = {
        "count": runs.row_start.diff(),
        "first": runs.first,
        "length": runs.end - runs.first,
        "label": runs.label,
    }
    records: dict[str, Record] = {name: table_record(name, t) for name, t in tables.items()}
    return {"shape": list(runs.shape), **records}
