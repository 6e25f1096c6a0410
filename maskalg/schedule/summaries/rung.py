"""The rung of summaries with values put in: intervals, narrowed by summaries of tensors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from ...engine.memory import MEMORY
from ..intervals.intervals import rows_of
from ..intervals.rung import IntervalRung, labels_within
from ..tile_runs import EMPTY, FULL, PARTIAL, TileRuns
from ..tiling import MOST_TILES, Tiling
from .labels import MOST_PAIRS, summary_labels
from .summaries import Summaries

_SMALLEST_TILE: Final = 64  # elements; fewer are evaluated as fast
_ALL_LABELLED: Final = 1 << 16  # tiles; of more, only those in open larger tiles
_MOST_OPEN: Final = 1 << 19  # tiles that are labelled one by one
_PARTS: Final = 8  # of a side of a larger tile

Numbers = NDArray[np.int64]


class SummaryRung(IntervalRung):
    """The rung of masks that read tensors and whose intervals alone do not decide every tile."""

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

        If too many stay partial: None where all tiles can be labelled instead, else the runs of
        larger tiles or those of intervals, whichever visit fewer tiles.
        """
        grown = _larger(tiling)
        if grown is None:
            return None
        large = replace(tiling, block=(tiling.block[0] * grown, tiling.block[1] * grown))
        labels = self._labels(large, tiling.block).cpu().numpy()
        labels = labels.reshape(-1, labels.shape[3])
        row: Numbers = np.arange(len(labels))
        column: Numbers = np.zeros(len(labels), dtype=np.int64)
        runs = [_runs(labels == FULL, row, column)]
        while grown > 1:
            line, place = (labels == PARTIAL).nonzero()
            parts = min(grown, _PARTS)
            while len(line) * parts**2 > _MOST_OPEN and parts > 1:
                parts //= 2
            if parts == 1:
                if math.prod(tiling.shape) <= MOST_TILES:
                    return None
                break
            grown //= parts
            small = replace(tiling, block=(tiling.block[0] * grown, tiling.block[1] * grown))
            runs = [_in_parts(each, large, small, parts) for each in runs]
            row = _rows_of_parts(row[line], large, small, parts)
            column = (column[line] + place) * parts
            labels = self._labels_of_parts(small, row, column, tiling.block)
            row, column, large = row.reshape(-1), np.tile(column, parts), small
            runs.append(_runs(labels == FULL, row, column))
        kinds = [FULL] * len(runs) + [PARTIAL]
        runs.append(_runs(labels == PARTIAL, row, column))
        if grown > 1:
            runs = [_in_parts(each, large, tiling, grown) for each in runs]
        label = np.repeat(kinds, [each.shape[1] for each in runs])
        every = np.concatenate(runs, axis=1)
        order = np.argsort(every[0] * tiling.shape[3] + every[1])
        columns = [torch.from_numpy(each[order]) for each in (*every, label)]
        found = TileRuns.of(columns[0], columns[1], columns[2], columns[3], tiling.shape[:3])
        if grown == 1:
            return found
        return min(found, super().runs(tiling), key=_visited)

    def _labels_of_parts(
        self, tiling: Tiling, row: Numbers, column: Numbers, of: tuple[int, int]
    ) -> NDArray[np.uint8]:
        """The labels of the parts of larger tiles, `[parts * tiles, parts]`: a line is one row.

        Args:
            tiling: the tiling of the parts.
            row: `[parts, tiles]`, counted through batch entries and heads; -1 past the last row.
            column: `[tiles]`, of the first part.
            of: as in `summary_labels`.
        """
        # Rows and columns of parts broadcast, so that each is looked up once. Tiles come last, for
        # operations are fast along many.
        column = column + np.arange(len(row))[:, None]
        row, last = row[:, None], tiling.shape[3] - 1
        flat, columns, inside = (
            torch.from_numpy(each).to(tiling.device)
            for each in (row.clip(min=0), column.clip(max=last), (row >= 0) & (column <= last))
        )
        members = np.indices(tiling.shape[:3]).reshape(3, -1)  # dividing each row takes longer
        batch, head, tile = torch.from_numpy(members).to(tiling.device).unbind()
        places = (batch.take(flat[:1]), head.take(flat[:1]), tile.take(flat), columns[None])
        rows = rows_of(tiling)

        def of_rows(ends: torch.Tensor) -> torch.Tensor:
            return ends.expand(tiling.shape[:3]).flatten().take(flat)

        touched, unfull = (
            [(of_rows(first), of_rows(end)) for first, end in ranges]
            for ranges in self._ranges(rows, tiling.block[1])
        )
        enclosed = labels_within(places[3][..., None], touched, unfull)[..., 0]
        extents = tiling.extents
        pairs = math.prod(tiling.shape[:2]) * extents.q_len * extents.kv_len <= MOST_PAIRS
        summaries = Summaries(rows, places, tiling.block, pairs, of)
        surely, perhaps = summaries.truth(tiling.form.structure.mask)
        labels = _both(enclosed, surely.to(torch.uint8) + perhaps.to(torch.uint8))
        return labels.mul(inside).mT.reshape(-1, len(row)).cpu().numpy()


def _visited(runs: TileRuns) -> int:
    """The tiles of the runs."""
    return int((runs.end - runs.first).sum(dtype=torch.int64))


def _both(enclosed: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The labels of intervals and of summaries joined: FULL or EMPTY if either is."""
    empty = (enclosed == EMPTY) | (labels == EMPTY)
    return torch.where(empty, EMPTY, torch.maximum(enclosed, labels)).to(torch.uint8)


def _larger(tiling: Tiling) -> int | None:
    """The factor by which tiles must grow to be few enough to label; None if there is none."""
    grown = 1
    batch, heads, rows, columns = tiling.shape
    while batch * heads * -(-rows // grown) * -(-columns // grown) > _ALL_LABELLED:
        grown *= 2
        if grown > max(rows, columns):
            return None
    return grown


def _runs(chosen: NDArray[np.bool_], row: Numbers, column: Numbers) -> Numbers:
    """Chosen neighbours joined to runs `[3, runs]` (row, first, end).

    Args:
        chosen: `[lines, tiles]`; a line is neighbours of one row.
        row, column: of the first tile of each line.
    """
    width = chosen.shape[1] + 1
    ended = np.zeros((len(chosen), width), dtype=np.bool_)
    ended[:, :-1] = chosen
    edges = np.flatnonzero(np.diff(ended.reshape(-1), prepend=False))
    line, first = np.divmod(edges[::2], width)
    first += column[line]
    return np.stack([row[line], first, first + edges[1::2] - edges[::2]])


def _in_parts(runs: Numbers, large: Tiling, small: Tiling, parts: int) -> Numbers:
    """Runs of larger tiles as runs of their parts, a run for each row of parts."""
    row = _rows_of_parts(runs[0], large, small, parts).reshape(-1)
    first, end = (np.tile(each * parts, parts) for each in runs[1:])
    inside = row >= 0
    return np.stack([row[inside], first[inside], end[inside].clip(max=small.shape[3])])


def _rows_of_parts(row: Numbers, large: Tiling, small: Tiling, parts: int) -> Numbers:
    """The rows of parts that each row of larger tiles has, `[parts, rows]`.

    -1 past the last query.
    """
    member, tile = np.divmod(row, large.shape[2])
    part = tile * parts + np.arange(parts)[:, None]
    return np.where(part < small.shape[2], member * small.shape[2] + part, -1)
