"""The visits of the CPU backend: for each tile of queries, pieces of keys to multiply with.

Batch entries and heads with the same visits are computed together. Others, such as batch entries
with different documents, are computed one after the other, unless it costs less to compute all of
them with the keys that any of them visits, as for short ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from ...engine.extents import Extents
from ...engine.memory import of_mask
from ...engine.normal_form import Bound
from ...schedule.rung import rung_of
from ...schedule.tile_runs import PARTIAL, TileRuns
from ...schedule.tiling import Tiling

# Scores held at once: 4 MiB in float32, about the second-level cache of two cores.
TILE_ELEMENTS: Final = 1 << 20
_BLOCK_Q: Final = 64
# Runs end at multiples of this: fine enough to waste little, coarse enough for vector registers.
_BLOCK_KV: Final = 16
_NARROWEST: Final = 256
# Fewer keys that all queries drop take less time than one more multiplication.
_BRIDGED: Final = 64
_NOWHERE: Final = 1 << 30  # past every tile of keys
# The fixed cost of a tile of queries, as a number of scores.
_OF_TILE: Final = 1 << 15

Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Keys `columns`, half-open; only the ranges `masked` among them need the mask."""

    columns: Range
    masked: tuple[Range, ...]


@dataclass(frozen=True)
class Row:
    """A tile of queries, half-open, and the disjoint pieces of keys it visits, in order."""

    rows: Range
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Group:
    """Batch entries (a half-open range) and query heads (None: all) with the same rows."""

    batch: Range
    heads: tuple[int, ...] | None
    rows: tuple[Row, ...]

    @property
    def members(self) -> tuple[slice, slice | list[int]]:
        """An index of `[batch, heads, …]` tensors."""
        return slice(*self.batch), slice(None) if self.heads is None else list(self.heads)


@of_mask
def plan(form: Bound, extents: Extents) -> tuple[Group, ...]:
    """The groups of a call."""
    if 0 in (extents.batch, extents.heads, extents.q_len):
        return ()
    block_q = min(_BLOCK_Q, extents.q_len)
    runs = rung_of(form.structure).runs(Tiling(form, extents, (block_q, _BLOCK_KV)))
    groups: list[Group] = []
    alike = _alike(runs, extents)
    if len(alike) > 1:
        united = _united(runs)
        if _costs(united, 1, extents) < _costs(runs, len(alike), extents):
            runs, alike = united, _alike(united, extents)
    for batch, heads, member in alike:
        width = _width(extents.heads if heads is None else len(heads), block_q)
        rows = _rows(runs, member, extents, block_q, width)
        together = max(1, width // max(extents.kv_len, 1))
        for first in range(batch[0], batch[1], together):
            groups.append(Group((first, min(first + together, batch[1])), heads, rows))
    return tuple(groups)


def _width(heads: int, block_q: int) -> int:
    """How many keys a piece may have."""
    return max(TILE_ELEMENTS // (heads * block_q), _NARROWEST)


def _alike(runs: TileRuns, extents: Extents) -> list[tuple[Range, tuple[int, ...] | None, int]]:
    """Batch ranges and heads with equal runs, and the number of the first member of each."""
    batches, heads, rows = runs.shape
    if batches == heads == 1:
        return [((0, extents.batch), None, 0)]
    kinds = [_content(runs, member * rows, rows) for member in range(batches * heads)]
    if len(set(kinds)) == 1:
        return [((0, extents.batch), None, 0)]
    found: list[tuple[Range, tuple[int, ...] | None, int]] = []
    for batch in range(batches):
        # One entry of the runs serves the whole batch if the mask does not depend on it.
        here = (0, extents.batch) if batches == 1 else (batch, batch + 1)
        own = kinds[batch * heads : (batch + 1) * heads]
        if len(set(own)) == 1:
            found.append((here, None, batch * heads))
            continue
        for kind in dict.fromkeys(own):
            members = tuple([head for head in range(heads) if own[head] == kind])
            found.append((here, members, batch * heads + members[0]))
    return found


def _united(runs: TileRuns) -> TileRuns:
    """For each row of tiles one run, of all tiles from the first to the last that any batch entry
    and head visits."""
    rows = runs.shape[2]
    member_row = torch.arange(len(runs.row_start) - 1) % rows
    row = member_row.repeat_interleave(runs.row_start.diff())
    first = torch.full((rows,), _NOWHERE, dtype=torch.int32)
    first.scatter_reduce_(0, row, runs.first, "amin")
    end = torch.zeros(rows, dtype=torch.int32).scatter_reduce_(0, row, runs.end, "amax")
    label = torch.full_like(first, PARTIAL)
    return TileRuns.of(torch.arange(rows), first, end, label, (1, 1, rows))


def _costs(runs: TileRuns, groups: int, extents: Extents) -> int:
    """The cost of these runs in this many groups, as a number of scores."""
    batches, heads, rows = runs.shape
    block_q = min(_BLOCK_Q, extents.q_len)
    members = extents.batch * extents.heads // (batches * heads)
    tiles = int((runs.end - runs.first).sum(dtype=torch.int64))
    scores = members * tiles * block_q * _BLOCK_KV
    return scores + (groups * rows + scores // TILE_ELEMENTS) * _OF_TILE


def _content(runs: TileRuns, row: int, rows: int) -> bytes:
    """The runs of some rows as bytes; equal bytes mean equal visits."""
    start = runs.row_start[row : row + rows + 1]
    own = slice(int(start[0]), int(start[-1]))
    columns = (start - start[0], runs.first[own], runs.end[own], runs.label[own])
    return b"".join(column.numpy().tobytes() for column in columns)


def _rows(
    runs: TileRuns, member: int, extents: Extents, block_q: int, width: int
) -> tuple[Row, ...]:
    count = runs.shape[2]
    ends = runs.row_start.numpy()[member * count : (member + 1) * count + 1]
    own = slice(ends[0], ends[-1])
    columns = [column.numpy()[own].tolist() for column in (runs.first, runs.end, runs.label)]
    every = list(zip(*columns, strict=True))
    rows = []
    for number, (begin, past) in enumerate(pairwise((ends - ends[0]).tolist())):
        ranges = [
            (first * _BLOCK_KV, min(end * _BLOCK_KV, extents.kv_len), label == PARTIAL)
            for first, end, label in every[begin:past]
        ]
        first = number * block_q
        pieces = tuple([part for span in _spans(ranges) for part in _cut(span, width)])
        rows.append(Row((first, min(first + block_q, extents.q_len)), pieces))
    return tuple(rows)


def _spans(ranges: list[tuple[int, int, bool]]) -> list[Piece]:
    """Runs with nearby ones joined, so that one multiplication computes them."""
    spans: list[Piece] = []
    for first, end, partial in ranges:
        joins = bool(spans) and first - spans[-1].columns[1] <= _BRIDGED
        before = spans.pop() if joins else Piece((first, first), ())
        masked, gap = before.masked, before.columns[1]
        for part in ((gap, first), (first, end) if partial else (end, end)):
            masked = _with(masked, part)
        spans.append(Piece((before.columns[0], end), masked))
    return spans


def _with(ranges: tuple[Range, ...], more: Range) -> tuple[Range, ...]:
    """Ranges in order, and one that begins at their end or later."""
    if more[0] == more[1]:
        return ranges
    if ranges and ranges[-1][1] == more[0]:
        return (*ranges[:-1], (ranges[-1][0], more[1]))
    return (*ranges, more)


def _cut(span: Piece, width: int) -> list[Piece]:
    """A span as pieces of at most `width` keys."""
    first, end = span.columns
    if end - first <= width:
        return [span]
    pieces = []
    # Cut at multiples of the width, so that rows share distances and remembered results.
    for left in range(first - first % width, end, width):
        columns = (max(left, first), min(left + width, end))
        masked = [(max(a, columns[0]), min(b, columns[1])) for a, b in span.masked]
        pieces.append(Piece(columns, tuple([(a, b) for a, b in masked if a < b])))
    return pieces
