"""The rung of digits with numbers put in: every tile is decided by boxes of keys.

The time to find runs of tiles grows with their number; counts of keys are sizes of boxes. Runs
depend on numbers and lengths alone. They are made on the host, kept on the device for all streams,
and looked up by kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch

from ...engine.extents import Extents
from ...engine.graphs import trees_allocate
from ...engine.memory import captured
from ...engine.normal_form import Bound
from ...engine.recent import Recent
from ...proof.digits.forms import DigitForms, Leaf, Numeral
from ..summaries.labels import summary_marks
from ..tile_runs import FULL, PARTIAL, TileRuns, marks_of
from ..tiling import MOST_TILES, Of, Tiling
from .boxes import Boxes, PartInCall, TileRows
from .digits import holds, joined, tile_of
from .tiles import FullTiles, KeyRanges, Tiles, key_ranges, merged

_ROWS_AT_ONCE: Final = 1 << 14

Found = tuple[torch.Tensor, ...]  # row, first tile, end, and whether the tiles are full


def _rows_at_once(tiling: Tiling, most: int) -> Iterator[TileRows]:
    """The rows of a call, at most `most` at a time."""
    batch, heads, tiles, _ = tiling.shape
    count, block_q = batch * heads * tiles, tiling.block[0]
    for begin in range(0, count, most):
        number = torch.arange(begin, min(begin + most, count), device=tiling.device)
        q0 = number % tiles * block_q
        yield TileRows(
            q0=q0,
            q1=(q0 + block_q - 1).clamp(max=tiling.extents.q_len - 1),
            batch=number // (tiles * heads),
            head=number // tiles % heads,
        )


def _runs(parts: list[PartInCall], rows: TileRows, kv_len: int, block: tuple[int, int]) -> TileRuns:
    offsets = [part.key_offset(rows) for part in parts]
    met = merged(
        [
            key_ranges(part.numeral, part.boxes(part.forms.touched, rows), offset, block[1])
            for part, offset in zip(parts, offsets, strict=True)
        ]
    )
    shape = (1, 1, len(rows.q0))
    if block == (1, 1):  # a pair is full where it is touched
        return TileRuns.of(met.row, met.first, met.last + 1, torch.full_like(met.row, FULL), shape)
    tiles = FullTiles(parts, rows, offsets, kv_len, block[1])
    row, first, end, full = _labelled(met, tiles.among(met), block[1], -(-kv_len // block[1]))
    return TileRuns.of(row, first, end, torch.where(full, FULL, PARTIAL), shape)


def _labelled(met: KeyRanges, full: Tiles, block_kv: int, columns: int) -> Found:
    """The tiles of ranges of keys as runs, labelled by the full ones among them."""
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
    """Which places lie in one of the disjoint, sorted ranges `first <= place < end`."""
    at = torch.searchsorted(first, places, right=True) - 1
    return (at >= 0) & (places < end[at.clamp(min=0)])


_QUERIES_AT_ONCE: Final = 1 << 16


def _of_rows(parts: list[PartInCall], rows: TileRows) -> torch.Tensor:
    found = [part.boxes(part.forms.touched, rows) for part in parts]
    count = torch.zeros_like(rows.q0)
    apart = torch.ones_like(rows.q0, dtype=torch.bool)
    for part, boxes in zip(parts, found, strict=True):
        count.index_add_(0, boxes.row, _sizes(part.numeral, boxes))
        if len(part.forms.touched) > 1:  # those of one clause are disjoint
            apart[_overlapping(boxes)] = False
    if len(parts) > 1:
        met = torch.stack([torch.bincount(b.row, minlength=len(count)) > 0 for b in found])
        apart &= met.sum(dim=0) < 2
    again = (~apart).nonzero()[:, 0]
    if len(again):
        some = TileRows(rows.q0[again], rows.q1[again], rows.batch[again], rows.head[again])
        count[again] = _by_ranges(parts, some)
    return count


def _by_ranges(parts: list[PartInCall], rows: TileRows) -> torch.Tensor:
    """Counts for rows whose boxes overlap: by their keys, as intervals."""
    met = merged(
        [
            key_ranges(part.numeral, part.boxes(part.forms.touched, rows), part.key_offset(rows), 1)
            for part in parts
        ]
    )
    count = torch.zeros_like(rows.q0)
    return count.index_add_(0, met.row, met.last - met.first + 1)


def _overlapping(boxes: Boxes) -> torch.Tensor:
    """Rows in which two boxes have, or may have, a key in common."""
    found = [boxes.row[:0]]
    step = 1
    while step < len(boxes.row):
        same = boxes.row[step:] == boxes.row[:-step]
        if not bool(same.any()):
            break
        low = torch.maximum(boxes.low[step:], boxes.low[:-step])
        high = torch.minimum(boxes.high[step:], boxes.high[:-step])
        found.append(boxes.row[step:][same & (low <= high).all(dim=1)])
        step += 1
    return torch.cat(found)


def _sizes(tree: Numeral, boxes: Boxes) -> torch.Tensor:
    """How many numbers between `first` and `last` lie in each box."""
    ends = (joined(tree, boxes.low), joined(tree, boxes.high))
    if bool(((boxes.first <= ends[0]) & (ends[1] <= boxes.last)).all()):
        return _size(tree, boxes)
    first, end = (_below(tree, at, boxes) for at in (boxes.first, boxes.last + 1))
    return (end - first).clamp(min=0)


def _size(tree: Numeral, boxes: Boxes) -> torch.Tensor:
    """How many numbers lie in each box."""
    if isinstance(tree, Leaf):
        return (boxes.high[:, tree.index] - boxes.low[:, tree.index] + 1).clamp(min=0)
    return _size(tree.major, boxes) * _below(tree.minor, torch.tensor(tree.radix), boxes)


def _below(tree: Numeral, at: torch.Tensor, boxes: Boxes) -> torch.Tensor:
    """How many numbers < `at` lie in each box."""
    if isinstance(tree, Leaf):
        low, high = boxes.low[:, tree.index], boxes.high[:, tree.index]
        return (torch.minimum(at, high + 1) - low).clamp(min=0)
    top = tile_of(at, tree.radix)
    whole = _below(tree.minor, torch.tensor(tree.radix), boxes)
    here = holds(tree.major, top, boxes.low, boxes.high)
    rest = _below(tree.minor, at - top * tree.radix, boxes)
    return _below(tree.major, top, boxes) * whole + torch.where(here, rest, 0)


MOST_BY_DIGITS: Final = 1 << 24  # tiles; the facts about each take 8 bytes

_KNOWN: Final[Recent[Any, torch.Tensor]] = Recent(64)
_OF_GRAPHS: Final[dict[Any, torch.Tensor]] = {}
"""Runs that a captured graph reads. They are never lost, since nothing tells when a graph ends: one
for each mask and lengths that were captured, however often they were, up to `MOST_OF_GRAPHS`."""
MOST_OF_GRAPHS: Final = 1 << 28  # bytes in all


@dataclass(frozen=True)
class DigitRung:
    """Tiles by digits; see `schedule.rung.Rung`."""

    forms: DigitForms
    reads_tensors: bool

    on_host: Final = "digits"
    by_position: Final = False

    @property
    def in_kernel(self) -> Literal["digits", "summaries"]:
        # Digits that tensors have a say in would be looked up anew for each tensor.
        return "summaries" if self.reads_tensors else "digits"

    @property
    def most_marks(self) -> int:
        return MOST_TILES if self.reads_tensors else MOST_BY_DIGITS

    def runs(self, tiling: Tiling) -> TileRuns:
        shape, kv_len = tiling.shape[:3], tiling.extents.kv_len
        if not kv_len or 0 in shape:
            none = torch.zeros(0, dtype=torch.int64)
            return TileRuns.of(none, none, none, none, shape)
        parts = [PartInCall(part, tiling.form.values, kv_len) for part in self.forms.parts]
        every = _rows_at_once(tiling, _ROWS_AT_ONCE)
        runs = [_runs(parts, rows, kv_len, tiling.block) for rows in every]
        return TileRuns.of_parts(runs, shape)

    def labels(self, tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
        nowhere = torch.zeros((0, 4), dtype=torch.int64, device=tiling.device)
        return self.runs(tiling).to(tiling.device).labels(tiling.shape[3]), nowhere

    def decides_every_tile(self, form: Bound) -> bool:
        return True

    def leaves_none_open(self, form: Bound) -> bool:
        return True

    def kept_keys(
        self, form: Bound, extents: Extents, most_spans: int | None = None
    ) -> torch.Tensor | None:
        if most_spans is not None:
            return None
        tiling = Tiling(form, extents, (1, 1))
        if not extents.kv_len:
            return torch.zeros(tiling.shape[:3], dtype=torch.int64, device=tiling.device)
        parts = [PartInCall(part, form.values, extents.kv_len) for part in self.forms.parts]
        counts = [torch.zeros(0, dtype=torch.int64, device=tiling.device)]
        counts += [_of_rows(parts, rows) for rows in _rows_at_once(tiling, _QUERIES_AT_ONCE)]
        return torch.cat(counts).view(tiling.shape[:3])

    def marks(self, tiling: Tiling, of: Of) -> torch.Tensor:
        if self.reads_tensors or math.prod(tiling.shape) > MOST_BY_DIGITS:
            return summary_marks(tiling, of)
        numbers = tuple([v for v in tiling.form.values if not isinstance(v, torch.Tensor)])
        key = (tiling.form.structure, numbers, of, tiling.key)
        found = _KNOWN.recall(key)
        if not captured(tiling.device):
            if found is None:
                found = self._made(tiling, of)
                return found if trees_allocate() else _KNOWN.keep(key, found)
            return found
        # A graph that is captured before any call made them, or when those of other graphs fill
        # the memory that is theirs, labels its tiles by itself.
        kept = _OF_GRAPHS.get(key)
        if kept is not None:
            return kept
        used = sum(marks.nbytes for marks in tuple(_OF_GRAPHS.values()))
        if found is None or used + found.nbytes > MOST_OF_GRAPHS:
            return summary_marks(tiling, of)
        return _OF_GRAPHS.setdefault(key, found)

    def _made(self, tiling: Tiling, of: Of) -> torch.Tensor:
        runs = self.runs(replace(tiling, on=torch.device("cpu")))
        labels = runs.to(tiling.device).labels(tiling.shape[3])
        made = marks_of(labels, of, tiling)
        if made.is_cuda:
            torch.cuda.current_stream(made.device).synchronize()  # other streams will read them
        return made
