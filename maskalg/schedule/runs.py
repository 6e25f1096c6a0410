"""Runs: what a tile of queries visits, as disjoint ranges of tiles with one class each.

A row has at most two boundaries for each interval of its closed forms, whatever the length: a
few integers where a list of blocks would hold every block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from ..engine.evaluate import device_of
from ..engine.extents import Extents, dependence
from ..engine.normal_form import Bound
from ..proof.closed_forms import Span
from ..proof.digits.forms import GridForms
from ..proof.proof import prove_structure
from .block_map import EMPTY, FULL, PARTIAL
from .digits.runs import grid_runs, padded
from .intervals.intervals import Rows, key_range, rows_of
from .summaries.labels import MOST_TILES, summarised, summary_labels, tile_counts

_ENDS_AT_ONCE: Final = 1 << 21
_SMALLEST_TILE: Final = 64  # elements; looking at fewer one by one is as fast

Ranges = tuple[torch.Tensor, torch.Tensor]  # firsts and ends, [batch, heads, rows, intervals]


@dataclass(frozen=True)
class Run:
    """Tiles of keys `first <= tile < end`, all FULL or all to be masked (PARTIAL)."""

    first: int
    end: int
    label: int


@dataclass(frozen=True, eq=False)
class RunTable:
    """The runs of every tile of queries: int64 `[batch, heads, rows, runs]` tensors.

    `label` is EMPTY where a run is unused. Runs of a row are disjoint and in order. PARTIAL runs
    may hold tiles that turn out empty or full where the proof is not exact; FULL runs never hold
    another, and no kept element lies outside of the runs.
    """

    first: torch.Tensor
    end: torch.Tensor
    label: torch.Tensor

    def row(self, batch: int, head: int, row: int) -> list[Run]:
        """The runs of one tile of queries, neighbours of one label joined."""
        at = (min(batch, self.first.shape[0] - 1), min(head, self.first.shape[1] - 1), row)
        joined: list[Run] = []
        for first, end, label in zip(
            self.first[at].tolist(), self.end[at].tolist(), self.label[at].tolist(), strict=True
        ):
            if label == EMPTY or first >= end:
                continue
            if joined and joined[-1].end == first and joined[-1].label == label:
                joined[-1] = Run(joined[-1].first, end, label)
            else:
                joined.append(Run(first, end, label))
        return joined


def run_table(form: Bound, extents: Extents, block: tuple[int, int]) -> RunTable:
    """The runs of a call, computed row by row from the closed forms."""
    device = device_of(form)
    sizes = dependence(form.structure.mask, form, extents)
    rows = rows_of(form.values, extents, (sizes.batch, sizes.heads), block[0], device)
    forms = prove_structure(form.structure).forms
    if forms.grid is not None:
        return _of_grid(forms.grid, form, extents, (sizes.batch, sizes.heads), block)
    touched = _tile_ranges(forms.touched, rows, block[1])
    unfull = _tile_ranges(forms.unfull, rows, block[1])
    if summarised(form.structure):
        counts = tile_counts(form, extents, block)
        if math.prod(block) >= _SMALLEST_TILE and 0 < math.prod(counts) <= MOST_TILES:
            place = torch.arange(counts[3], device=device)
            enclosed = _labels(place, touched, unfull)
            return _within(enclosed, summary_labels(form, extents, block, device))
    points = torch.cat([*touched, *unfull], dim=-1).sort(dim=-1).values
    first, end = points[..., :-1], points[..., 1:]
    return RunTable(first.cpu(), end.cpu(), _labels(first, touched, unfull).cpu())


def _labels(places: torch.Tensor, touched: Ranges, unfull: Ranges) -> torch.Tensor:
    inside = torch.where(_inside(places, unfull), PARTIAL, FULL)
    return torch.where(_inside(places, touched), inside, EMPTY)


def _within(enclosed: torch.Tensor, labels: torch.Tensor) -> RunTable:
    """The runs of tiles, `[batch, heads, rows, columns]`, that both keep; FULL where either says
    so."""
    either = torch.maximum(enclosed, labels)
    label = torch.where((enclosed == EMPTY) | (labels == EMPTY), EMPTY, either).cpu()
    columns = label.shape[-1]
    begins = torch.ones_like(label, dtype=torch.bool)
    begins[..., 1:] = label[..., 1:] != label[..., :-1]
    most = int(begins.sum(dim=-1).max()) if label.numel() else 0
    place = torch.where(begins, torch.arange(columns), columns)
    first = place.sort(dim=-1).values[..., :most]
    end = torch.nn.functional.pad(first[..., 1:], (0, 1), value=columns)
    # What is unused begins past all tiles.
    found = label.gather(-1, first.clamp(max=max(columns - 1, 0)))
    return RunTable(first, end, torch.where(first < columns, found, EMPTY))


def _of_grid(
    grid: GridForms,
    form: Bound,
    extents: Extents,
    sizes: tuple[int, int],
    block: tuple[int, int],
) -> RunTable:
    runs = grid_runs(grid, form.values, extents, sizes, block)
    rows = -(-extents.q_len // block[0])
    columns = padded(runs, sizes[0] * sizes[1] * rows)
    first, end, full = (column.cpu().view(*sizes, rows, -1) for column in columns)
    label = torch.where(first < end, torch.where(full, FULL, PARTIAL), EMPTY)
    return RunTable(first, end, label)


def _tile_ranges(spans: tuple[Span, ...], rows: Rows, block_kv: int) -> Ranges:
    ranges = [key_range(span, rows).tiles(block_kv) for span in spans]
    if not ranges:
        shape = np.broadcast_shapes(*[i.shape for i in rows.environment.indices.values()])
        none = torch.zeros((*shape, 1), dtype=torch.int64, device=rows.environment.device)
        return none, none
    return (
        torch.stack([first for first, _ in ranges], dim=-1),
        torch.stack([end for _, end in ranges], dim=-1),
    )


def _inside(places: torch.Tensor, ranges: Ranges) -> torch.Tensor:
    """Which places lie in one of the ranges of their row."""
    firsts, ends = ranges
    at = places[..., None]
    return ((at >= firsts[..., None, :]) & (at < ends[..., None, :])).any(dim=-1)


def united(spans: tuple[Span, ...], form: Bound, extents: Extents) -> torch.Tensor:
    """How many keys lie in the intervals of spans for each query, int64 `[batch, heads, q_len]`."""
    sizes = dependence(form.structure.mask, form, extents)
    rows = rows_of(form.values, extents, (sizes.batch, sizes.heads), 1, device_of(form))
    at_once = max(1, _ENDS_AT_ONCE // (max(len(spans), 1) * sizes.batch * sizes.heads))
    found = [torch.zeros((sizes.batch, sizes.heads, 0), dtype=torch.int64)]
    for begin in range(0, extents.q_len, at_once):
        lows, ends = _tile_ranges(spans, rows.part(begin, begin + at_once), 1)
        if len(spans) > 1:
            # Each counts from where those before it end.
            lows, order = lows.sort(dim=-1)
            ends = ends.gather(-1, order)
            reach = torch.nn.functional.pad(ends.cummax(dim=-1).values[..., :-1], (1, 0))
            lows = torch.maximum(lows, reach)
        count = (ends - lows).clamp(min=0).sum(dim=-1)
        found.append(count.expand(sizes.batch, sizes.heads, -1).cpu())
    return torch.cat(found, dim=-1)
