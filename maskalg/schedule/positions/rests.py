"""What a section asks of an own position beside its bounds: a member, a distance, an order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch

from .ranges import Maxima
from .sets import At, PositionSet, rows_at
from .tile_pairs import Rest, TilePairs, by_tile

LOWEST: Final = -(2**63 - 1024)  # below every entry but the last thousand; exact as a double


@dataclass(frozen=True)
class Members:
    """An own position of a set."""

    members: PositionSet

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self.members.between(at, low, high) > 0

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self.members.between(at, low, high)

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        met = self.members.between(pairs.at, *pairs.own_ends) > 0
        return met, torch.ones_like(met)


@dataclass(frozen=True)
class Distances:
    """A distance q - k of a set; distance d is its position `d + zero`."""

    members: PositionSet
    zero: int
    by_query: bool  # whether the query is the own index

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self.count(at, other, low, high) > 0

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self._within(at, (low, high), (other, other))

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        # Every distance between the extremes occurs, unless some other position does not count.
        met = self._within(pairs.at, pairs.own_ends, pairs.other_ends) > 0
        return met, pairs.all_hold() | ~met

    def _within(
        self,
        at: At,
        own: tuple[torch.Tensor, torch.Tensor],
        other: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        first, last = (own, other) if self.by_query else (other, own)
        low, high = first[0] - last[1] + self.zero, first[1] - last[0] + self.zero
        return self.members.between(at, low, high)


@dataclass(frozen=True)
class AtLeast:
    """An entry of an own position not below that of the other position.

    `entries` `[batch, heads, own]` are far below all others where a position is no member;
    `ordered` says the same by ranks, for counting.
    """

    entries: torch.Tensor
    least: torch.Tensor
    own_block: int
    ordered: Callable[[], Rest]

    @cached_property
    def _largest(self) -> Maxima:
        return Maxima.of(self.entries, self.own_block, torch.maximum)

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self._largest.over(at, low, high) >= rows_at(self.least, at, other)

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self.ordered().count(at, other, low, high)

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        largest = by_tile(self.entries, pairs.sides[0], LOWEST).amax(dim=-1)
        wanted = torch.where(pairs.holds, self.least, -LOWEST)
        least = by_tile(wanted, pairs.sides[1], -LOWEST).amin(dim=-1)
        met = rows_at(largest, pairs.at, pairs.own) >= rows_at(least, pairs.at, pairs.other)
        return met, torch.ones_like(met)
