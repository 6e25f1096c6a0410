"""The rung of summaries with values put in: intervals, narrowed by what tensors hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from ..intervals.intervals import rows_of
from ..intervals.rung import IntervalRung, labels_within
from ..memory import MEMORY
from ..tile_runs import EMPTY, FULL, PARTIAL, TileRuns
from ..tiling import Tiling
from .labels import MOST_PAIRS, MOST_TILES, summary_labels
from .summaries import Summaries

_SMALLEST_TILE: Final = 64  # elements; looking at fewer one by one is as fast
_ALL_LABELLED: Final = 1 << 16  # tiles; of more, those that lie in open larger ones
_MOST_OPEN: Final = 1 << 19  # tiles that are labelled one by one
_PARTS: Final = 8  # of a side of a larger tile

Numbers = NDArray[np.int64]


class SummaryRung(IntervalRung):
    """Intervals of masks that read tensors, where they alone do not decide every tile."""

    on_host = "summaries"
    in_kernel = "summaries"

    def runs(self, tiling: Tiling) -> TileRuns:
        tiles = math.prod(tiling.shape)
        if not tiles or math.prod(tiling.block) < _SMALLEST_TILE:
            return super().runs(tiling)
        if tiles <= _ALL_LABELLED:
            return TileRuns.of_labels(self._labels(tiling).cpu())
        form = tiling.form
        found = MEMORY.recall(
            ("runs", tiling.key), (form.structure.mask,), form.values, lambda: self._divided(tiling)
        )
        if found is not None:
            return found
        if tiles <= MOST_TILES:
            return TileRuns.of_labels(self._labels(tiling).cpu())
        return super().runs(tiling)

    def _labels(self, tiling: Tiling, of: tuple[int, int] | None = None) -> torch.Tensor:
        """The labels of all tiles, uint8 `[batch, heads, rows, columns]`, of smaller ones."""
        place = torch.arange(tiling.shape[3], device=tiling.device)
        touched, unfull = self._ranges(rows_of(tiling), tiling.block[1])
        return _both(labels_within(place, touched, unfull), summary_labels(tiling, of))

    def _divided(self, tiling: Tiling) -> TileRuns | None:
        """Runs by larger tiles, of which those that stay partial are divided.

        None where so many are that labelling all tiles is as good.
        """
        grown = _larger(tiling)
        if grown is None:
            return None
        large = replace(tiling, block=(tiling.block[0] * grown, tiling.block[1] * grown))
        labels = self._labels(large, tiling.block).cpu().numpy()
        labels = labels.reshape(-1, labels.shape[3])
        runs = [np.stack([*part, part[1] + 1]) for part in [(labels == FULL).nonzero()]]
        row, column = (labels == PARTIAL).nonzero()
        while grown > 1:
            parts = min(grown, _PARTS)
            grown //= parts
            small = replace(tiling, block=(tiling.block[0] * grown, tiling.block[1] * grown))
            if len(row) * parts**2 > _MOST_OPEN:
                return None
            runs = [_in_parts(_joined(each), large, small, parts) for each in runs]
            row, column = _parts_of(row, column, large, small, parts)
            found = self._labels_at(small, row, column, tiling.block)
            full, open_ = found == FULL, found == PARTIAL
            runs.append(np.stack([row[full], column[full], column[full] + 1]))
            row, column, large = row[open_], column[open_], small
        kinds = [FULL] * len(runs) + [PARTIAL]
        runs.append(np.stack([row, column, column + 1]))
        label = np.repeat(kinds, [each.shape[1] for each in runs])
        every = np.concatenate(runs, axis=1)
        order = np.argsort(every[0] * tiling.shape[3] + every[1], kind="stable")
        columns = [torch.from_numpy(each[order]) for each in (*every, label)]
        return TileRuns.of(columns[0], columns[1], columns[2], columns[3], tiling.shape[:3])

    def _labels_at(
        self, tiling: Tiling, row: Numbers, column: Numbers, of: tuple[int, int]
    ) -> NDArray[np.uint8]:
        """The labels of some tiles; rows are counted through batch entries and heads."""
        flat = torch.from_numpy(row).to(tiling.device)
        of_rows = np.indices(tiling.shape[:3]).reshape(3, -1)  # dividing each tile's takes longer
        each = (*[axis.take(row) for axis in of_rows], column)
        places = tuple([torch.from_numpy(x).to(tiling.device) for x in each])
        rows = rows_of(tiling)

        def of_tiles(ends: torch.Tensor) -> torch.Tensor:
            return ends.expand(tiling.shape[:3]).flatten().gather(0, flat)

        touched, unfull = (
            [(of_tiles(first), of_tiles(end)) for first, end in ranges]
            for ranges in self._ranges(rows, tiling.block[1])
        )
        enclosed = labels_within(places[3][:, None], touched, unfull)[:, 0]
        extents = tiling.extents
        pairs = math.prod(tiling.shape[:2]) * extents.q_len * extents.kv_len <= MOST_PAIRS
        summaries = Summaries(rows, places, tiling.block, pairs, of)
        surely, perhaps = summaries.truth(tiling.form.structure.mask)
        labels = _both(enclosed, surely.to(torch.uint8) + perhaps.to(torch.uint8))
        return labels.cpu().numpy()


def _both(enclosed: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Labels of intervals and summaries together: FULL and EMPTY where either says so."""
    empty = (enclosed == EMPTY) | (labels == EMPTY)
    return torch.where(empty, EMPTY, torch.maximum(enclosed, labels)).to(torch.uint8)


def _larger(tiling: Tiling) -> int | None:
    """How many times larger tiles are few enough to label all of them; None where none are."""
    grown = 1
    batch, heads, rows, columns = tiling.shape
    while batch * heads * -(-rows // grown) * -(-columns // grown) > _ALL_LABELLED:
        grown *= 2
        if grown > max(rows, columns):
            return None
    return grown


def _joined(runs: Numbers) -> Numbers:
    """Single tiles `[3, tiles]` (row, first, end) in any order as runs of neighbours."""
    if not runs.shape[1] or (runs[2] != runs[1] + 1).any():
        return runs
    order = np.lexsort((runs[1], runs[0]))
    row, first, end = runs[:, order]
    apart = (row[1:] != row[:-1]) | (first[1:] != end[:-1])
    begins, ends = np.ones((2, len(row)), dtype=np.bool_)
    begins[1:] = ends[:-1] = apart
    return np.stack([row[begins], first[begins], end[ends]])


def _in_parts(runs: Numbers, large: Tiling, small: Tiling, parts: int) -> Numbers:
    """Runs of larger tiles as runs of their parts, a run for each row of parts."""
    columns = small.shape[3]
    row = _rows_of_parts(runs[0], large, small, parts)
    first, end = (np.repeat(each * parts, parts) for each in runs[1:])
    inside = row >= 0
    return np.stack([row[inside], first[inside], end[inside].clip(max=columns)])


def _parts_of(
    row: Numbers, column: Numbers, large: Tiling, small: Tiling, parts: int
) -> tuple[Numbers, Numbers]:
    """The parts of larger tiles."""
    rows = np.repeat(_rows_of_parts(row, large, small, parts), parts)
    number = np.tile(np.arange(parts), len(row) * parts)
    columns = np.repeat(column * parts, parts * parts) + number
    inside = (rows >= 0) & (columns < small.shape[3])
    return rows[inside], columns[inside]


def _rows_of_parts(row: Numbers, large: Tiling, small: Tiling, parts: int) -> Numbers:
    """The `parts` rows of parts that each row of larger tiles has, -1 past the last query."""
    member, tile = np.divmod(row, large.shape[2])
    part = tile[:, None] * parts + np.arange(parts)
    found = member[:, None] * small.shape[2] + part
    return np.where(part < small.shape[2], found, -1).reshape(-1)
