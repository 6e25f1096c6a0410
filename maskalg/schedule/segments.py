"""`mask.segments()`: the runs of every tile of queries in compressed rows, without padding.

A row of a million-token mask is a few integers here, where a table of blocks has an entry for
each of its 8192 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from ..engine.extents import Extents, dependence, resolve
from ..engine.normal_form import Bound, bound
from ..formula.expression import Expression
from ..formula.shown import Shown
from ..proof.digits.forms import GridForms
from ..proof.proof import prove_structure
from .block_map import EMPTY, FULL, PARTIAL, block_pair
from .digits.runs import grid_runs
from .runs import Run, RunTable, run_table

Shape = tuple[int, int, int]  # batch, heads and rows


@dataclass(frozen=True, eq=False)
class Segments(Shown):
    """What each tile of queries visits: ordered, disjoint ranges of tiles of keys.

    Row `r = (batch_index * heads + head_index) * rows + tile` owns the segments from
    `row_start[r]` up to, not including, `row_start[r + 1]`. Neighbours that touch have different
    labels, and a row with nothing to visit has no segments.

    Attributes:
        row_start: int32 `[batch * heads * rows + 1]`, where the segments of each row begin.
        first, end: int32 `[segments]`, the tiles `first <= tile < end`.
        label: int32 `[segments]`, PARTIAL=1 or FULL=2.
        shape: `(batch, heads, rows)`; batch and heads are 1 where the mask does not depend on
            them.
        block: `(block_q, block_kv)`; the last row and column may be cut by the lengths.
        q_len, kv_len: lengths in positions.

    No kept element is outside of the segments, and FULL segments hold full tiles only. PARTIAL ones
    may hold tiles that turn out empty or full where the proof leaves tiles open; `mask.blocks`
    evaluates those.
    """

    row_start: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    label: torch.Tensor
    shape: tuple[int, int, int]
    block: tuple[int, int]
    q_len: int
    kv_len: int

    def row(self, batch: int, head: int, row: int) -> list[Run]:
        """The segments of one tile of queries; an index that the mask does not tell apart is 0."""
        batches, heads, rows = self.shape
        at = (min(batch, batches - 1) * heads + min(head, heads - 1)) * rows + row
        own = slice(int(self.row_start[at]), int(self.row_start[at + 1]))
        columns = (self.first[own], self.end[own], self.label[own])
        return [Run(*run) for run in zip(*(column.tolist() for column in columns), strict=True)]

    def counts(self) -> tuple[int, int, int]:
        """How many tiles are outside of the segments, in PARTIAL ones and in FULL ones."""
        tiles = (self.end - self.first).to(torch.int64)
        partial, full = (int(tiles[self.label == label].sum()) for label in (PARTIAL, FULL))
        batches, heads, rows = self.shape
        columns = -(-self.kv_len // self.block[1])
        return batches * heads * rows * columns - partial - full, partial, full

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        arrays = (self.row_start, self.first, self.end, self.label)
        return sum(array.numel() * array.element_size() for array in arrays)

    def __repr__(self) -> str:
        empty, partial, full = self.counts()
        return (
            f"Segments(q_len={self.q_len}, kv_len={self.kv_len}, block={self.block}, "
            f"segments={len(self.first)}, empty={empty}, partial={partial}, full={full})"
        )


@dataclass(frozen=True, eq=False)
class CompressedRows:
    """`row_start`, `first`, `end` and `label` of `Segments`, for a flat number of rows."""

    row_start: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    label: torch.Tensor


def compress(
    row: torch.Tensor, first: torch.Tensor, end: torch.Tensor, label: torch.Tensor, rows: int
) -> CompressedRows:
    """Runs in the order of their rows as compressed rows, touching ones of a label joined.

    Args:
        row: integers `[runs]`, non-decreasing.
        first, end: integers `[runs]`; within a row each run begins where the one before ends, or
            later. A run with `first >= end` is left out.
        label: integers `[runs]`; EMPTY runs are left out.
        rows: how many rows there are.
    """
    some = (label != EMPTY) & (first < end)
    row, first, end, label = row[some], first[some], end[some], label[some]
    joins = (row[1:] == row[:-1]) & (label[1:] == label[:-1]) & (first[1:] == end[:-1])
    edge = joins.new_zeros(1) if len(row) else joins
    begins, ends = ~torch.cat([edge, joins]), ~torch.cat([joins, edge])
    row = row[begins]
    row_start = torch.zeros(rows + 1, dtype=torch.int32, device=row.device)
    row_start[1:] = torch.bincount(row, minlength=rows).cumsum(0)
    columns = (first[begins], end[ends], label[begins])
    return CompressedRows(row_start, *(column.to(torch.int32) for column in columns))


def segments(
    mask: Expression,
    q_len: int,
    kv_len: int | None,
    *,
    block: int | tuple[int, int],
    batch: int | None,
    heads: int | None,
) -> Segments:
    """The row schedule of a mask; see `Mask.segments`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = resolve(form, q_len, kv_len, batch, heads)
    grid = prove_structure(form.structure).forms.grid
    if grid is None:
        shape, found = _of_table(run_table(form, extents, pair))
    else:
        shape, found = of_grid(grid, form, extents, pair)
    return Segments(
        found.row_start,
        found.first,
        found.end,
        found.label,
        shape,
        pair,
        extents.q_len,
        extents.kv_len,
    )


def _of_table(table: RunTable) -> tuple[Shape, CompressedRows]:
    shape = cast(Shape, tuple(table.first.shape[:3]))
    count = shape[0] * shape[1] * shape[2]
    row = torch.arange(count, device=table.first.device).repeat_interleave(table.first.shape[3])
    runs = (table.first.flatten(), table.end.flatten(), table.label.flatten())
    return shape, compress(row, *runs, count)


def of_grid(
    grid: GridForms, form: Bound, extents: Extents, block: tuple[int, int]
) -> tuple[Shape, CompressedRows]:
    """Straight from the runs, without rows as long as the longest."""
    sizes = dependence(form.structure.mask, form, extents)
    shape = (sizes.batch, sizes.heads, -(-extents.q_len // block[0]))
    runs = grid_runs(grid, form.values, extents, shape[:2], block)
    label = torch.where(runs.full, FULL, PARTIAL)
    row, first, end = runs.row.cpu(), runs.first.cpu(), runs.end.cpu()
    return shape, compress(row, first, end, label.cpu(), shape[0] * shape[1] * shape[2])
