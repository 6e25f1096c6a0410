"""Runs of tiles that a kernel looks up, for masks whose closed forms only enclose what is kept.

Tiles are labelled exactly by the digits of positions, for canvases and the like, once for a pair of
lengths; or from summaries of tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from ..engine.extents import Extents
from ..engine.normal_form import Bound
from .rung import rung_of
from .tile_runs import rows_together
from .tiling import Of, Tiling

_SMALLEST_BITS: Final = 6


@dataclass(frozen=True)
class Layout:
    """How runs of tiles lie in memory.

    Attributes:
        grain_bits: a labelled tile has `2**grain_bits` queries and as many keys.
        of_batch, of_head: rows from one batch entry, and from one head, to the next; 0 where the
            mask is one for all.
    """

    grain_bits: int
    of_batch: int
    of_head: int


def layout_of(form: Bound, extents: Extents, of: Of) -> Layout:
    """The layout of the runs of a call; arguments as of `marked_runs`."""
    bits = _SMALLEST_BITS
    longest = max(extents.q_len, extents.kv_len)
    most = rung_of(form.structure).most_marks
    counts = Tiling(form, extents, (1 << bits, 1 << bits)).shape
    while math.prod(counts) > most and 1 << bits < longest:
        bits += 1
        counts = Tiling(form, extents, (1 << bits, 1 << bits)).shape
    rows = counts[2 if of == "queries" else 3]
    if of == "keys, either way":
        rows = -(-rows // rows_together(1 << bits))
    of_batch = counts[1] * rows if counts[0] > 1 else 0
    return Layout(bits, of_batch, rows if counts[1] > 1 else 0)


def marked_runs(form: Bound, extents: Extents, of: Of, device: torch.device) -> torch.Tensor:
    """Runs of each row of tiles from each column on, int32 `[batch, heads, rows, columns, 2]`, or
    `[batch, heads, rows, 2, columns, 2]` from the first column and from the last.

    Entries are those of `marks_of`. Rows are tiles of queries and columns tiles of keys, or the
    other way round. Remembered while the tensors live unchanged.
    """
    grain = 1 << layout_of(form, extents, of).grain_bits
    return rung_of(form.structure).marks(Tiling(form, extents, (grain, grain), device), of)
