"""Derivatives at pairs that the mask drops, and in branches not chosen: they are 0.

Whatever the bias is there. The chain rule multiplies the 0 that comes from a dropped pair with the
slope of the bias, and 0 * inf is NaN: `p[head] * log(abs(q_idx - kv_idx))` at q = k. What a bias is
computed from therefore passes through `of_kept`.
"""

from __future__ import annotations

import torch


def of_kept(values: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """`values` of pairs, with gradients from kept ones alone; None keeps all.

    As large as both together: an entry that many pairs read is repeated before they compute with
    it, so that its gradient is a sum over what passed here.

    Args:
        values: broadcastable to `[batch, heads, rows, columns]`.
        kept: Boolean, likewise.
    """
    return values if kept is None else torch.where(kept, values, values.detach())


def within(kept: torch.Tensor | None, chosen: torch.Tensor) -> torch.Tensor | None:
    """The kept pairs that a condition chooses; None where nobody asked."""
    return None if kept is None else kept & chosen


def outside(kept: torch.Tensor | None, chosen: torch.Tensor) -> torch.Tensor | None:
    """The kept pairs that it does not choose."""
    return None if kept is None else kept & ~chosen
