"""Runs of tiles in compressed rows: labels, segments, counts and backends are made from them.

A row of a million-token mask takes a few integers here, and 8192 entries, one for each block, in a
table of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch.nn.functional import pad

from ..engine.memory import constant
from .tiling import Of, Tiling

EMPTY: Final = 0
PARTIAL: Final = 1
FULL: Final = 2

_NONE: Final = 1 << 29  # twice a column past all others
_TOGETHER: Final = 4  # columns of the widest tile of a kernel
_ROW: Final = 128  # positions of a row that kernels go along either way


@dataclass(frozen=True)
class Run:
    """Tiles of keys `first <= tile < end`, all FULL or all to be masked (PARTIAL)."""

    first: int
    end: int
    label: int


@dataclass(frozen=True, eq=False)
class TileRuns:
    """Ordered, disjoint ranges of tiles of keys for each tile of queries, as `Segments` has them.

    Row `r` of `prod(shape)` owns the runs from `row_start[r]` up to, not including,
    `row_start[r + 1]`. No kept element is outside of the runs, and FULL runs hold full tiles only.
    PARTIAL runs may hold empty and full tiles if the rung does not decide every tile.
    """

    row_start: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    label: torch.Tensor
    shape: tuple[int, int, int]

    @staticmethod
    def of(
        row: torch.Tensor,
        first: torch.Tensor,
        end: torch.Tensor,
        label: torch.Tensor,
        shape: tuple[int, int, int],
    ) -> TileRuns:
        """Runs in the order of their rows, touching ones of a label joined; on the host.

        Args:
            row: integers `[runs]`, non-decreasing.
            first, end: integers `[runs]`; within a row each run begins where the one before ends,
                or later. A run with `first >= end` is left out.
            label: integers `[runs]`; EMPTY runs are left out.
            shape: how many batch entries, heads and rows there are.
        """
        # NumPy takes a fifth of PyTorch's time for an operation on few entries.
        columns = [each.cpu().numpy() for each in (row, first, end, label)]
        some = (columns[3] != EMPTY) & (columns[1] < columns[2])
        if not some.all():
            columns = [column[some] for column in columns]
        of_row, begin, past, kind = columns
        apart = (of_row[1:] != of_row[:-1]) | (kind[1:] != kind[:-1]) | (begin[1:] != past[:-1])
        if not apart.all():
            begins, ends = np.append(True, apart), np.append(apart, True)
            of_row, begin, past, kind = of_row[begins], begin[begins], past[ends], kind[begins]
        rows = math.prod(shape)
        row_start = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(of_row, minlength=rows), out=row_start[1:])
        joined = (begin, past, kind)
        arrays = [torch.from_numpy(each.astype(np.int32, copy=False)) for each in joined]
        return TileRuns(torch.from_numpy(row_start), arrays[0], arrays[1], arrays[2], shape)

    @staticmethod
    def of_parts(parts: list[TileRuns], shape: tuple[int, int, int]) -> TileRuns:
        """The runs of consecutive parts of the rows, joined."""
        counts = [part.row_start.diff() for part in parts]
        row_start = pad(torch.cat(counts).cumsum(0, dtype=torch.int32), (1, 0))
        first, end, label = (
            torch.cat(column)
            for column in zip(*[(part.first, part.end, part.label) for part in parts], strict=True)
        )
        return TileRuns(row_start, first, end, label, shape)

    @staticmethod
    def of_labels(labels: torch.Tensor) -> TileRuns:
        """The runs of labels `[batch, heads, rows, columns]`."""
        batch, heads, rows, columns = labels.shape
        begins = torch.ones_like(labels, dtype=torch.bool)
        begins[..., 1:] = labels[..., 1:] != labels[..., :-1]
        place = begins.flatten().nonzero()[:, 0]
        row = place // max(columns, 1)
        # A row begins with a run, so the next run begins where this one ends, or with a row.
        end = torch.cat([place[1:], place.new_full((1,), labels.numel())])[: len(place)]
        start = row * columns
        label = labels.flatten()[place]
        return TileRuns.of(row, place - start, end - start, label, (batch, heads, rows))

    def to(self, device: torch.device | str) -> TileRuns:
        """The same runs on a device."""
        arrays = [each.to(device) for each in (self.row_start, self.first, self.end, self.label)]
        return TileRuns(arrays[0], arrays[1], arrays[2], arrays[3], self.shape)

    @property
    def tiles(self) -> torch.Tensor:
        """How many tiles each run has, int64 `[runs]`."""
        return (self.end - self.first).to(torch.int64)

    @property
    def row_of(self) -> torch.Tensor:
        """The row that owns each run, int64 `[runs]`."""
        rows = torch.arange(len(self.row_start) - 1, device=self.row_start.device)
        return rows.repeat_interleave(self.row_start.diff())

    @property
    def places(self) -> torch.Tensor:
        """Batch entry, head and tile of queries of each run, int64 `[runs, 3]`."""
        _, heads, rows = (max(size, 1) for size in self.shape)
        row = self.row_of
        return torch.stack([row // (heads * rows), row // rows % heads, row % rows], dim=1)

    def row(self, batch: int, head: int, row: int) -> list[Run]:
        """The runs of one tile of queries; indices that the mask does not depend on count as 0."""
        batches, heads, rows = self.shape
        at = (min(batch, batches - 1) * heads + min(head, heads - 1)) * rows + row
        own = slice(int(self.row_start[at]), int(self.row_start[at + 1]))
        columns = (self.first[own], self.end[own], self.label[own])
        return [Run(*run) for run in zip(*(column.tolist() for column in columns), strict=True)]

    def labels(self, columns: int) -> torch.Tensor:
        """The label of every tile, uint8 `[batch, heads, rows, columns]`."""
        # Runs are disjoint, so each place begins at most one run, and ends at most one.
        row, label = self.row_of * columns, self.label.to(torch.uint8)
        size = math.prod(self.shape) * columns
        change = torch.zeros(size + 1, dtype=torch.uint8, device=label.device)
        change[row + self.first] = label
        change[row + self.end] -= label
        return change[:-1].cumsum(0, dtype=torch.uint8).view(*self.shape, columns)


def counts_of(labels: torch.Tensor) -> tuple[int, int, int]:
    """How many labels are EMPTY, PARTIAL and FULL."""
    empty, partial, full = torch.bincount(labels.flatten(), minlength=3).tolist()
    return empty, partial, full


def label_of(some_kept: torch.Tensor, some_dropped: torch.Tensor) -> torch.Tensor:
    """Labels of tiles, uint8, from whether they keep some pair and whether they drop some."""
    kept, dropped = some_kept.to(torch.uint8), some_dropped.to(torch.uint8)
    return kept * (FULL - dropped)  # PARTIAL is one less than FULL, and EMPTY is 0


def marks_of(labels: torch.Tensor, of: Of, tiling: Tiling) -> torch.Tensor:
    """The runs of the labels of a tiling along a kernel's rows, for `of`.

    Either way, they are those from the first column on, and those from the last: `[batch, heads,
    rows, 2, columns, 2]`, for rows of 128 keys, or of a tile if it has more. EMPTY columns behind
    the last fill them up to a multiple of four, so that a kernel's tile of as many begins at the
    same ones either way.
    """
    if of == "queries":
        return marked_runs_of(labels)
    labels = labels.mT
    if of == "keys":
        return marked_runs_of(labels)
    if tiling.extents.q_len % tiling.block[0]:  # a tile cut by the length is never FULL
        labels = torch.cat([labels[..., :-1], labels[..., -1:].clamp(max=PARTIAL)], dim=-1)
    together = rows_together(tiling.block[1])
    last = labels[..., -1:, :].expand(*labels.shape[:-2], -labels.shape[-2] % together, -1)
    rows = torch.cat([labels, last], dim=-2).unflatten(-2, (-1, together))
    most = rows.amax(-2)
    labels = torch.where(rows.amin(-2) == most, most, PARTIAL).to(labels.dtype)
    filled = pad(labels, (0, -labels.shape[-1] % _TOGETHER))
    return marked_runs_of(torch.stack([filled, filled.flip(-1)], dim=-2))


def rows_together(block: int) -> int:
    """How many tiles of `block` keys share a row, for kernels that walk runs from either end."""
    return max(_ROW // block, 1)


def marked_runs_of(labels: torch.Tensor) -> torch.Tensor:
    """The runs of labels `[…, columns]` as kernels look them up, int32 `[…, columns, 2]`.

    For each column, two numbers about the run at or after it: twice its first column, plus 1 if its
    tiles are PARTIAL; and the column past the run. Found without waiting for the device.
    """
    columns = labels.shape[-1]

    def places() -> tuple[torch.Tensor, ...]:
        place = torch.arange(columns - 1, -1, -1, device=labels.device, dtype=torch.int32)
        return 2 * place, place + 1

    doubled, past = constant(("places of runs", columns), labels.device, places)
    # From the last column back, the next run is the smallest so far.
    labels = labels.flip(-1)
    empty = labels == EMPTY
    goes_on = pad(labels[..., 1:] == labels[..., :-1], (1, 0))
    codes = (doubled + (labels == PARTIAL)).masked_fill_(empty, _NONE)
    ends = past.expand(labels.shape).masked_fill(empty | goes_on, columns)
    runs = [each.cummin(dim=-1).values for each in (codes, ends)]
    return torch.stack(runs, dim=-1).flip(-2)
