"""The rung of summaries with values put in: intervals, narrowed by what tensors hold."""

from __future__ import annotations

import math
from typing import Final

import torch

from ..intervals.intervals import rows_of
from ..intervals.rung import IntervalRung, labels_within
from ..tile_runs import EMPTY, TileRuns
from ..tiling import Tiling
from .labels import MOST_TILES, summary_labels

_SMALLEST_TILE: Final = 64  # elements; looking at fewer one by one is as fast


class SummaryRung(IntervalRung):
    """Intervals of masks that read tensors, where they alone do not decide every tile."""

    on_host = "summaries"
    in_kernel = "summaries"

    def runs(self, tiling: Tiling) -> TileRuns:
        many = not 0 < math.prod(tiling.shape) <= MOST_TILES
        if many or math.prod(tiling.block) < _SMALLEST_TILE:
            return super().runs(tiling)
        place = torch.arange(tiling.shape[3], device=tiling.device)
        touched, unfull = self._ranges(rows_of(tiling), tiling.block[1])
        enclosed, labels = labels_within(place, touched, unfull), summary_labels(tiling)
        empty = (enclosed == EMPTY) | (labels == EMPTY)
        # FULL where either says so.
        label = torch.where(empty, EMPTY, torch.maximum(enclosed, labels))
        return TileRuns.of_labels(label.cpu())
