"""Runs of the tiles of grid masks: every tile decided exactly, at a cost that follows the runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Value
from ...proof.digits.forms import GridForms
from .boxes import Grid, GridRows
from .digits import tile_of
from .full import FullTiles, Tiles
from .tiles import Segments, merged, segments

_ROWS_AT_ONCE: Final = 8192


@dataclass(frozen=True)
class GridRuns:
    """Tiles `first <= tile < end` of rows, all full or all partial; `[runs]` each.

    `row` counts tiles of queries through batch, heads and rows, in order; runs of a row are
    disjoint and in order, and neighbours of one kind are joined.
    """

    row: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    full: torch.Tensor


def grid_runs(
    forms: GridForms,
    values: tuple[Value, ...],
    extents: Extents,
    sizes: tuple[int, int],
    block: tuple[int, int],
) -> GridRuns:
    """The runs of a call; what is not in them is empty.

    Args:
        forms, values: the proof, and what is bound to its slots.
        extents: lengths of the call.
        sizes: the batch entries and heads to tell apart.
        block: `(block_q, block_kv)`.
    """
    device = next((v.device for v in values if isinstance(v, torch.Tensor)), torch.device("cpu"))
    none = torch.zeros(0, dtype=torch.int64, device=device)
    parts = [GridRuns(none, none, none, none.to(torch.bool))]
    if extents.kv_len:
        grids = [Grid(part, values, extents.kv_len) for part in forms.parts]
        for begin, rows in rows_at_once(extents, sizes, block[0], device, _ROWS_AT_ONCE):
            found = _runs(grids, rows, extents.kv_len, block[1])
            parts.append(GridRuns(found.row + begin, found.first, found.end, found.full))
    return GridRuns(
        torch.cat([part.row for part in parts]),
        torch.cat([part.first for part in parts]),
        torch.cat([part.end for part in parts]),
        torch.cat([part.full for part in parts]),
    )


def rows_at_once(
    extents: Extents, sizes: tuple[int, int], block_q: int, device: torch.device, most: int
) -> Iterator[tuple[int, GridRows]]:
    """The rows of a call, at most `most` at a time, and the number of the first of them."""
    tiles = -(-extents.q_len // block_q)
    count = sizes[0] * sizes[1] * tiles
    for begin in range(0, count, most):
        number = torch.arange(begin, min(begin + most, count), device=device)
        q0 = number % tiles * block_q
        yield (
            begin,
            GridRows(
                q0=q0,
                q1=(q0 + block_q - 1).clamp(max=extents.q_len - 1),
                batch=number // (tiles * sizes[1]),
                head=number // tiles % sizes[1],
            ),
        )


def _runs(grids: list[Grid], rows: GridRows, kv_len: int, block_kv: int) -> GridRuns:
    offsets = [grid.key_offset(rows) for grid in grids]
    met = merged(
        [
            segments(grid.numeral, grid.boxes(grid.part.touched, rows), offset, block_kv)
            for grid, offset in zip(grids, offsets, strict=True)
        ]
    )
    tiles = FullTiles(grids, rows, offsets, kv_len, block_kv)
    return _labelled(met, tiles.among(met), block_kv, -(-kv_len // block_kv))


def _labelled(met: Segments, full: Tiles, block_kv: int, columns: int) -> GridRuns:
    """The tiles of segments as runs, given the full ones among them."""
    span = columns + 1  # so that runs of two rows never touch
    begin = met.row * span
    first = begin + tile_of(met.first, block_kv)
    end = begin + tile_of(met.last, block_kv) + 1
    edge = torch.ones_like(first[:1], dtype=torch.bool)
    apart = first[1:] > end[:-1]
    first, end = first[torch.cat([edge, apart])], end[torch.cat([apart, edge])]
    whole = torch.zeros_like(first, dtype=torch.bool)
    if len(full[0]):
        full_first, full_end = ((full[0] * span + side).sort().values for side in full[1:])
        places = torch.cat([first, end, full_first, full_end]).unique()
        inside = _within(places, first, end)
        whole = _within(places, full_first, full_end)[inside]
        first, end = places[inside], places[1:][inside[:-1]]
    row = first // span
    return GridRuns(row, first - row * span, end - row * span, whole)


def _within(places: torch.Tensor, first: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Which places lie in one of the disjoint ranges `first <= place < end`, given in order."""
    at = torch.searchsorted(first, places, right=True) - 1
    return (at >= 0) & (places < end[at.clamp(min=0)])


def grid_labels(
    runs: GridRuns, shape: tuple[int, int, int, int], labels: tuple[int, int, int]
) -> torch.Tensor:
    """The labels of every tile as uint8 `[batch, heads, rows, columns]`.

    `labels` are those of an empty, a partial and a full tile.
    """
    empty, partial, full = labels
    flat = torch.full(
        (shape[0] * shape[1] * shape[2] * shape[3],),
        empty,
        dtype=torch.uint8,
        device=runs.row.device,
    )
    length = runs.end - runs.first
    begin = (runs.row * shape[3] + runs.first).repeat_interleave(length)
    start = (length.cumsum(0) - length).repeat_interleave(length)
    place = begin + torch.arange(len(begin), device=begin.device) - start
    marked = torch.where(runs.full, full, partial).to(torch.uint8)
    flat[place] = marked.repeat_interleave(length)
    return flat.view(shape)


def padded(runs: GridRuns, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First tile, end and kind of the runs of each row, `[rows, most runs of a row]`.

    Unused places begin and end at 0.
    """
    counts = torch.bincount(runs.row, minlength=rows)
    place = torch.arange(len(runs.row), device=runs.row.device)
    place = place - (counts.cumsum(0) - counts)[runs.row]
    most = max(int(counts.max()) if rows else 0, 1)
    first = torch.zeros(rows, most, dtype=torch.int64, device=runs.row.device)
    end, full = torch.zeros_like(first), torch.zeros_like(first, dtype=torch.bool)
    first[runs.row, place] = runs.first
    end[runs.row, place] = runs.end
    full[runs.row, place] = runs.full
    return first, end, full
