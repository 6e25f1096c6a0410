"""Runs of labels, as kernels look them up."""

from __future__ import annotations

from typing import Final

import torch
from torch.nn.functional import pad

from .memory import constant

_NONE: Final = 1 << 29  # twice a column past all others


def runs_of(labels: torch.Tensor) -> torch.Tensor:
    """The runs of labels `[…, columns]`, int32 `[…, columns, 2]`.

    From each column on: twice the first column of the run at or after it, and 1 more if its tiles
    are PARTIAL, not FULL; and the column past the run.
    """
    columns = labels.shape[-1]

    def places() -> tuple[torch.Tensor, ...]:
        place = torch.arange(columns - 1, -1, -1, device=labels.device, dtype=torch.int32)
        return 2 * place, place + 1

    doubled, past = constant(("places of runs", columns), labels.device, places)
    # From the last column on, what comes next is the least so far.
    labels = labels.flip(-1)
    empty = labels == 0
    goes_on = pad(labels[..., 1:] == labels[..., :-1], (1, 0))
    codes = (doubled + (labels == 1)).masked_fill_(empty, _NONE)
    ends = past.expand(labels.shape).masked_fill(empty | goes_on, columns)
    runs = [each.cummin(dim=-1).values for each in (codes, ends)]
    return torch.stack(runs, dim=-1).flip(-2)
