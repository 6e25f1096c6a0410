"""Runs of tiles that a kernel looks up, for masks whose closed forms only enclose what is kept.

Tiles are labelled exactly by the digits of positions, for canvases and the like, once for a pair of
lengths; or from summaries of tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import torch

from ..engine.extents import Extents
from ..engine.normal_form import Bound, Structure
from ..proof.proof import prove_structure
from .digits.kernel_runs import MOST_BY_DIGITS, by_digits, digit_runs
from .label_runs import runs_of
from .memory import MEMORY, memorable, stream_of
from .summaries.labels import MOST_TILES, Counts, summarised, summary_labels, tile_counts

Of = Literal["queries", "keys"]

_SMALLEST_BITS: Final = 6
_FEWEST_TILES: Final = 1 << 10  # visiting that many takes less than labelling them
_FEWEST_EACH_TIME: Final = 1 << 14  # likewise, where they are labelled at each call, or one row


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


def marked(structure: Structure) -> bool:
    """Whether kernels look their runs up."""
    return prove_structure(structure).forms.grid is not None or summarised(structure)


def layout_of(form: Bound, extents: Extents, of: Of) -> Layout:
    """The layout of the runs of a call; arguments as of `marked_runs`."""
    bits = _SMALLEST_BITS
    longest = max(extents.q_len, extents.kv_len)
    most = MOST_BY_DIGITS if by_digits(form.structure) else MOST_TILES
    counts = tile_counts(form, extents, (1 << bits, 1 << bits))
    while math.prod(counts) > most and 1 << bits < longest:
        bits += 1
        counts = tile_counts(form, extents, (1 << bits, 1 << bits))
    rows = counts[2 if of == "queries" else 3]
    of_batch = counts[1] * rows if counts[0] > 1 else 0
    return Layout(bits, of_batch, rows if counts[1] > 1 else 0)


def marked_runs(form: Bound, extents: Extents, of: Of, device: torch.device) -> torch.Tensor:
    """Runs of each row of tiles from each column on, int32 `[batch, heads, rows, columns, 2]`.

    Twice the first column of the run at or after this one, and 1 more if its tiles are PARTIAL,
    not FULL; and the column past the run. Rows are tiles of queries and columns tiles of keys, or
    the other way round. Remembered while the tensors live unchanged.
    """
    grain = 1 << layout_of(form, extents, of).grain_bits
    block = (grain, grain)
    counts = tile_counts(form, extents, block)
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if by_digits(form.structure) and math.prod(counts) <= MOST_BY_DIGITS:
        known = digit_runs(form, extents, grain, of, device)
        if known is not None:
            return known
    told = [value for value in form.values if isinstance(value, torch.Tensor)]
    often = memorable(told) and extents.q_len > grain
    fewest = _FEWEST_TILES if often else _FEWEST_EACH_TIME
    if not fewest < math.prod(counts) <= MOST_TILES:
        shape = counts if of == "queries" else (*counts[:2], *counts[:1:-1])
        if capturing:
            return _all_partial.__wrapped__(shape, device, 0)  # there from the replay on
        return _all_partial(shape, device, stream_of(device))

    def runs() -> torch.Tensor:
        labels = summary_labels(form, extents, block, device)
        return runs_of(labels if of == "queries" else labels.mT)

    key = ("runs", of, block, counts, extents.q_len, extents.kv_len, device)
    return MEMORY.recall(key, (form.structure.mask,), form.values, runs)


@lru_cache(maxsize=64)
def _all_partial(counts: Counts, device: torch.device, stream: int) -> torch.Tensor:
    return runs_of(torch.ones(counts, dtype=torch.uint8, device=device))
