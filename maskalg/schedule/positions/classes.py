"""Positions by class: how many of a range have the entries that a position asks for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from .sets import At, rows_at


@dataclass(frozen=True)
class Classes:
    """Own positions sorted by (batch entry and head, class, position), as one number each.

    `wanted` `[batch, heads, other positions]` is the row and class that each other position asks
    for, and `own` those of the own positions, -1 where one is no member; `sorted` `[own positions
    of all rows]` ends with what is no member.
    """

    sorted: torch.Tensor
    own: torch.Tensor
    wanted: torch.Tensor
    length: int

    def between(
        self,
        at: At,
        other: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
    ) -> torch.Tensor:
        """How many members in low..high have the class that `other` asks for."""
        begin = rows_at(self.wanted, at, other) * self.length
        upto = torch.searchsorted(self.sorted, begin + high, right=True)
        return upto - torch.searchsorted(self.sorted, begin + low)


def classes_of(
    pairs: list[tuple[torch.Tensor, torch.Tensor]],
    members: torch.Tensor,
    lengths: tuple[int, int],
) -> Classes:
    """Classes of positions that agree in all pairs of (own entries, other entries).

    Args:
        pairs: integer tensors `[batch, heads, own]` and `[batch, heads, other]` each; sizes 1 are
            broadcast. No pair puts all positions into one class.
        members: bool `[batch, heads, own]`: the own positions that count.
        lengths: of the own and of the other positions.
    """
    shapes = [tensor.shape[:2] for pair in pairs for tensor in pair]
    rows = np.broadcast_shapes(members.shape[:2], *shapes)
    # Rows are told apart from the start, as classes of their own.
    row = torch.arange(prod(rows), device=members.device).view(*rows, 1)
    own, other = (row.expand(*rows, length) for length in lengths)
    for number, (own_entries, other_entries) in enumerate(pairs):
        alone = number == 0 and prod(rows) == 1
        own, other = _refined(own, other, own_entries, other_entries, alone=alone)
    place = torch.arange(lengths[0], device=members.device)
    keys = own * lengths[0] + place
    # What is no member is put past every class, so that no count depends on the device.
    keys = torch.where(members, keys, torch.iinfo(torch.int64).max)
    ordered = keys.flatten().sort().values
    return Classes(ordered, torch.where(members, own, -1), other, lengths[0])


def _refined(
    own: torch.Tensor,
    other: torch.Tensor,
    own_entries: torch.Tensor,
    other_entries: torch.Tensor,
    *,
    alone: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes split by one more pair of entries, numbered anew so that they stay small.

    `alone` says that all are of one class yet.
    """
    wide = torch.cat(
        [own_entries.expand(own.shape).flatten(), other_entries.expand(other.shape).flatten()]
    )
    joined = _ranked(wide.to(torch.int64))
    if not alone:
        before = torch.cat([own.flatten(), other.flatten()])
        joined = _ranked(before * wide.numel() + joined)
    return joined[: own.numel()].view(own.shape), joined[own.numel() :].view(other.shape)


def _ranked(values: torch.Tensor) -> torch.Tensor:
    """Each value as its place among the different ones; `unique` would wait for the device."""
    ordered, order = values.sort()
    first = torch.ones_like(ordered)
    first[1:] = (ordered[1:] != ordered[:-1]).to(ordered.dtype)
    ranks = first.cumsum(0) - 1
    return torch.empty_like(ranks).scatter_(0, order, ranks)
