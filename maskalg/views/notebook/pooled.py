"""Labels of many blocks as the labels of few cells, and labels by evaluation."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...schedule.block_map import Segments


def pooled(labels: torch.Tensor, cells: int) -> tuple[torch.Tensor, int]:
    """Labels `[rows, columns]` as at most `cells` a side, and how many blocks a cell has a side.

    A cell is empty or full where all of its blocks are.
    """
    rows, columns = labels.shape
    times = max(1, -(-max(rows, columns) // cells))
    if times == 1:
        return labels, 1
    (least, most) = (_united(_united(labels, times, find).T, times, find).T for find in _EXTREMES)
    return torch.where(least == most, least, torch.ones_like(least)), times


_EXTREMES = (torch.amin, torch.amax)


def _united(
    labels: torch.Tensor, times: int, find: Callable[[torch.Tensor, int], torch.Tensor]
) -> torch.Tensor:
    """The extreme of every `times` rows as one row."""
    return torch.stack([find(rows, 0) for rows in labels.split(times)])


def pooled_segments(found: Segments, row_offset: int, cells: int) -> tuple[torch.Tensor, int]:
    """The rows from `row_offset` on of one batch entry and head, pooled like labels of blocks.

    What a cell holds is counted from the ends of segments, whatever their length.
    """
    rows, columns = found.shape[2], -(-found.kv_len // found.block[1])
    times = max(1, -(-max(rows, columns, 1) // cells))
    own = slice(int(found.row_start[row_offset]), int(found.row_start[row_offset + rows]))
    first, end, label = (x[own].cpu() for x in (found.first, found.end, found.label))
    starts = found.row_start[row_offset : row_offset + rows + 1].cpu().to(torch.int64)
    row = torch.repeat_interleave(torch.arange(rows), starts.diff()) // times
    edges = torch.arange(0, columns + times, times).clamp(max=columns)
    before = torch.minimum(edges, end[:, None]) - torch.minimum(edges, first[:, None])
    inside = before.diff(dim=1)
    shape = (-(-rows // times), len(edges) - 1)
    visited, full = (
        torch.zeros(shape, dtype=torch.int64).index_add(0, row[of], inside[of])
        for of in (label >= 0, label == 2)
    )
    heights = torch.arange(0, rows + times, times).clamp(max=rows).diff()
    whole = full == heights[:, None] * edges.diff()
    labels = torch.where(visited == 0, 0, torch.where(whole, 2, 1))
    return labels.to(torch.uint8), times
