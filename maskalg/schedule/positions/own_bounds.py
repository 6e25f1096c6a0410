"""Bounds of the own index by tiles of the other one: which own tiles do they reach, and cover?"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .sets import rows_at
from .tile_pairs import TilePairs, by_tile


@dataclass(frozen=True)
class Bounds:
    """The bounds of other positions that hold, tile by tile in the order of the lower ones.

    Attributes:
        starts: the lower bounds of all rows and tiles as one increasing sequence, flat: `length
            + 1` times the number of row and tile is added to each.
        reach: `[batch, heads, tiles * side]`, the highest upper bound up to a place in that order.
        latest, earliest: `[batch, heads, tiles]`, the highest lower bound and the lowest upper one.
        length: of the own index; positions that do not hold start there.
        side: of the tiles of other positions.
    """

    starts: torch.Tensor
    reach: torch.Tensor
    latest: torch.Tensor
    earliest: torch.Tensor
    length: int
    side: int

    @staticmethod
    def of(
        low: torch.Tensor, high: torch.Tensor, holds: torch.Tensor, length: int, side: int
    ) -> Bounds:
        """For bounds `[batch, heads, other]`, both included and within 0..length - 1."""
        low, high, holds = torch.broadcast_tensors(low, high, holds)
        latest = by_tile(torch.where(holds, low, 0), side, 0).amax(dim=-1)
        earliest = by_tile(torch.where(holds, high, length), side, length).amin(dim=-1)
        low, order = by_tile(torch.where(holds, low, length), side, length).sort(dim=-1)
        high = by_tile(torch.where(holds, high, -1), side, -1).gather(-1, order)
        tile = torch.arange(latest.numel(), device=low.device).view(*latest.shape, 1)
        return Bounds(
            (low + tile * (length + 1)).flatten(),
            high.cummax(dim=-1).values.flatten(2),
            latest,
            earliest,
            length,
            side,
        )

    def meet(self, pairs: TilePairs) -> torch.Tensor:
        """Whether some other position of a pair has an own position of it within its bounds."""
        first, last = pairs.own_ends
        tiles = torch.arange(self.latest.numel(), device=first.device).view(self.latest.shape)
        tile = rows_at(tiles, pairs.at, pairs.other)
        upto = torch.searchsorted(self.starts, tile * (self.length + 1) + last, right=True)
        count = upto - tile * self.side
        place = pairs.other * self.side + (count - 1).clamp(min=0)
        return (count > 0) & (rows_at(self.reach, pairs.at, place) >= first)

    def cover(self, pairs: TilePairs) -> torch.Tensor:
        """Whether the bounds of every other position that holds leave all own positions in."""
        first, last = pairs.own_ends
        latest = rows_at(self.latest, pairs.at, pairs.other)
        return (latest <= first) & (rows_at(self.earliest, pairs.at, pairs.other) >= last)
