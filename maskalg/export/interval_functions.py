"""Intervals of keys as a function for FlexAttention."""

from __future__ import annotations

from collections.abc import Callable

import torch


def interval_function(intervals: torch.Tensor) -> Callable[..., torch.Tensor]:
    """`mask_mod` that keeps keys in one of the intervals of their query.

    Intervals are int32 `[2, batch, heads, intervals, q_len]`, first keys and ends. Each is a tensor
    of its own that is read at the query alone, which torch's kernels lower without a look at pairs.
    """
    _, batches, heads, count, _ = intervals.shape
    starts = [intervals[0, :, :, number].contiguous() for number in range(count)]
    ends = [intervals[1, :, :, number].contiguous() for number in range(count)]

    def mask_mod(
        b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor
    ) -> torch.Tensor:
        batch, head = (b if batches > 1 else b * 0), (h if heads > 1 else h * 0)
        at = (batch, head, q_idx)
        kept = (kv_idx >= starts[0][at]) & (kv_idx < ends[0][at])
        for start, end in zip(starts[1:], ends[1:], strict=True):
            kept = kept | ((kv_idx >= start[at]) & (kv_idx < end[at]))
        return kept

    return mask_mod
