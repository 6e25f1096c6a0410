"""Runs of tiles by digits: every tile decided exactly, at a cost that follows the runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from ...proof.digits.forms import DigitForms
from ..tile_runs import FULL, PARTIAL, TileRuns
from ..tiling import Tiling
from .boxes import PartInCall, TileRows
from .digits import tile_of
from .full import FullTiles, Tiles
from .tiles import KeyRanges, key_ranges, merged

_ROWS_AT_ONCE: Final = 8192

Found = tuple[torch.Tensor, ...]  # row, first tile, end, and whether the tiles are full


def digit_runs(forms: DigitForms, tiling: Tiling) -> TileRuns:
    """The runs of a call; each tile has the label that its elements have."""
    device, kv_len = tiling.device, tiling.extents.kv_len
    none = torch.zeros(0, dtype=torch.int64, device=device)
    found: list[Found] = [(none, none, none, none.to(torch.bool))]
    if kv_len:
        parts = [PartInCall(part, tiling.form.values, kv_len) for part in forms.parts]
        for begin, rows in rows_at_once(tiling, _ROWS_AT_ONCE):
            row, *rest = _runs(parts, rows, kv_len, tiling.block[1])
            found.append((row + begin, *rest))
    row, first, end, full = (torch.cat(column) for column in zip(*found, strict=True))
    return TileRuns.of(row, first, end, torch.where(full, FULL, PARTIAL), tiling.shape[:3])


def rows_at_once(tiling: Tiling, most: int) -> Iterator[tuple[int, TileRows]]:
    """The rows of a call, at most `most` at a time, and the number of the first of them."""
    batch, heads, tiles, _ = tiling.shape
    count, block_q = batch * heads * tiles, tiling.block[0]
    for begin in range(0, count, most):
        number = torch.arange(begin, min(begin + most, count), device=tiling.device)
        q0 = number % tiles * block_q
        yield (
            begin,
            TileRows(
                q0=q0,
                q1=(q0 + block_q - 1).clamp(max=tiling.extents.q_len - 1),
                batch=number // (tiles * heads),
                head=number // tiles % heads,
            ),
        )


def _runs(parts: list[PartInCall], rows: TileRows, kv_len: int, block_kv: int) -> Found:
    offsets = [part.key_offset(rows) for part in parts]
    met = merged(
        [
            key_ranges(part.numeral, part.boxes(part.forms.touched, rows), offset, block_kv)
            for part, offset in zip(parts, offsets, strict=True)
        ]
    )
    tiles = FullTiles(parts, rows, offsets, kv_len, block_kv)
    return _labelled(met, tiles.among(met), block_kv, -(-kv_len // block_kv))


def _labelled(met: KeyRanges, full: Tiles, block_kv: int, columns: int) -> Found:
    """The tiles of ranges of keys as runs, given the full ones among them."""
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
    return row, first - row * span, end - row * span, whole


def _within(places: torch.Tensor, first: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Which places lie in one of the disjoint ranges `first <= place < end`, given in order."""
    at = torch.searchsorted(first, places, right=True) - 1
    return (at >= 0) & (places < end[at.clamp(min=0)])
