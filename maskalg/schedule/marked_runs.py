"""Runs of tiles that a kernel looks up, for masks whose tiles summaries label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import torch

from ..extents import Extents
from ..normalform import Bound
from .sets import MEMORY, memorable, stream_of
from .summary_labels import MOST_TILES, Counts, summary_labels, tile_counts

Of = Literal["queries", "keys"]

_SMALLEST: Final = 64
_FEWEST_TILES: Final = 1 << 10  # visiting that many takes less than labelling them
_FEWEST_EACH_TIME: Final = 1 << 14  # likewise, where they are labelled at each call, or one row
_NONE: Final = 1 << 28  # a column past all others


@dataclass(frozen=True)
class Layout:
    """How runs of tiles lie in memory.

    Attributes:
        grain: positions of a labelled tile, of queries and of keys.
        of_batch, of_head: rows from one batch entry, and from one head, to the next; 0 where the
            mask is one for all.
    """

    grain: int
    of_batch: int
    of_head: int


def layout_of(form: Bound, extents: Extents, of: Of) -> Layout:
    """The layout of the runs of a call; arguments as of `marked_runs`."""
    grain = _SMALLEST
    longest = max(extents.q_len, extents.kv_len)
    counts = tile_counts(form, extents, (grain, grain))
    while math.prod(counts) > MOST_TILES and grain < longest:
        grain *= 2
        counts = tile_counts(form, extents, (grain, grain))
    rows = counts[2 if of == "queries" else 3]
    of_batch = counts[1] * rows if counts[0] > 1 else 0
    return Layout(grain, of_batch, rows if counts[1] > 1 else 0)


def marked_runs(form: Bound, extents: Extents, of: Of, device: torch.device) -> torch.Tensor:
    """Runs of each row of tiles from each column on, int32 `[batch, heads, rows, columns, 2]`.

    Twice the first column of the run at or after this one, and 1 more if its tiles are PARTIAL,
    not FULL; and the column past the run. Rows are tiles of queries and columns tiles of keys, or
    the other way round. Remembered while the tensors live unchanged.
    """
    grain = layout_of(form, extents, of).grain
    block = (grain, grain)
    counts = tile_counts(form, extents, block)
    told = [value for value in form.values if isinstance(value, torch.Tensor)]
    often = memorable(told) and extents.q_len > grain
    fewest = _FEWEST_TILES if often else _FEWEST_EACH_TIME
    if not fewest < math.prod(counts) <= MOST_TILES:
        shape = counts if of == "queries" else (*counts[:2], *counts[:1:-1])
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
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


def runs_of(labels: torch.Tensor) -> torch.Tensor:
    """The runs of labels `[…, columns]`, as of `marked_runs`."""
    columns = labels.shape[-1]
    place = torch.arange(columns, device=labels.device, dtype=torch.int32).expand(labels.shape)
    first = _next(labels > 0, place)
    last = torch.ones_like(labels, dtype=torch.bool)
    last[..., :-1] = labels[..., 1:] != labels[..., :-1]
    end = _next(last, place) + 1
    at = first.clamp(max=columns - 1).long()
    partial = (labels.gather(-1, at) == 1).to(torch.int32)
    return torch.stack((2 * first + partial, end.gather(-1, at)), dim=-1)


def _next(holds: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The first place at or after each at which it holds."""
    found = torch.where(holds, place, _NONE)
    return found.flip(-1).cummin(dim=-1).values.flip(-1)
