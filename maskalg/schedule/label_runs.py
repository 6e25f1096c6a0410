"""Runs of labels, as kernels look them up."""

from __future__ import annotations

from typing import Final

import torch

_NONE: Final = 1 << 28  # a column past all others


def runs_of(labels: torch.Tensor) -> torch.Tensor:
    """The runs of labels `[…, columns]`, int32 `[…, columns, 2]`.

    From each column on: twice the first column of the run at or after it, and 1 more if its tiles
    are PARTIAL, not FULL; and the column past the run.
    """
    columns = labels.shape[-1]
    place = torch.arange(columns, device=labels.device, dtype=torch.int32).expand(labels.shape)
    first = _next(labels > 0, place)
    last = torch.ones_like(labels, dtype=torch.bool)
    last[..., :-1] = labels[..., 1:] != labels[..., :-1]
    end = _next(last, place) + 1
    at = first.clamp(max=columns - 1).long()
    partial = (labels.gather(-1, at) == 1).to(torch.int32)
    return torch.stack((2 * first + partial, end.gather(-1, at)), dim=-1)


def _next(holds: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The first place at or after each at which it holds."""
    found = torch.where(holds, place, _NONE)
    return found.flip(-1).cummin(dim=-1).values.flip(-1)
