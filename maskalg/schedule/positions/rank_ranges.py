"""Own positions whose entry lies between two limits of the other position, by ranks.

A wavelet matrix counts how many ranks in a range of places lie between two ranks. Level by level,
from the highest bit of the ranks down, ranks with a 0 move before ranks with a 1; prefix sums of
the zeros tell where a range of places moves. A limit costs two look-ups a level.

Source: Claude, Navarro and Ordonez, "The wavelet matrix", 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import torch

from .rests import Rest, TilePairs, Verdict, by_tile
from .sets import At, rows_at

_POSITIONS_AT_ONCE: Final = 1 << 20

Limits = tuple[torch.Tensor, torch.Tensor]  # ranks low <= rank < high, [batch, heads, other]


@dataclass(frozen=True)
class Wavelet:
    """`zeros[level]`, int32 `[places + 1]`, counts the zeros before each place of a level.

    Rows of `shape` (batch, heads, length) follow each other in the places of the first level.
    """

    zeros: tuple[torch.Tensor, ...]
    shape: tuple[int, int, int]

    @staticmethod
    def of(ranks: torch.Tensor, most: int) -> Wavelet:
        """The wavelet matrix of integers 0..most `[batch, heads, length]`."""
        flat = ranks.flatten()
        place = torch.arange(len(flat), device=flat.device)
        levels = []
        for bit in reversed(range(most.bit_length())):
            zero = ((flat >> bit) & 1) == 0
            count = torch.zeros(len(flat) + 1, dtype=torch.int32, device=flat.device)
            count[1:] = zero.cumsum(0, dtype=torch.int32)
            levels.append(count)
            goes = torch.where(zero, count[:-1], count[-1] + place - count[:-1])
            flat = torch.empty_like(flat).scatter_(0, goes, flat)
        return Wavelet(tuple(levels), (ranks.shape[0], ranks.shape[1], ranks.shape[2]))

    def between(
        self,
        at: At,
        positions: tuple[torch.Tensor, torch.Tensor],
        low: torch.Tensor,
        high: torch.Tensor,
    ) -> torch.Tensor:
        """How many ranks in low..high - 1 are at the positions first..last, both included."""
        row = at[0].clamp(max=self.shape[0] - 1) * self.shape[1] + at[1].clamp(
            max=self.shape[1] - 1
        )
        first = row * self.shape[2] + positions[0]
        end = row * self.shape[2] + positions[1] + 1
        return self._below(first, end, high) - self._below(first, end, low)

    def _below(self, first: torch.Tensor, end: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(rank)
        for level, zeros in enumerate(self.zeros):
            one = ((rank >> (len(self.zeros) - 1 - level)) & 1) == 1
            before, upto = zeros[first].long(), zeros[end].long()
            total = total + torch.where(one, upto - before, 0)
            first = torch.where(one, first - before + zeros[-1], before)
            end = torch.where(one, end - upto + zeros[-1], upto)
        return total


@dataclass(frozen=True)
class RankRanges(Rest):
    """Ranks of own positions, and the range of ranks that each other position accepts.

    `ranks` `[batch, heads, own]` are equal for equal entries and below `count_of_ranks`; positions
    that are not members have `count_of_ranks`. Accepted are ranks in `limits` but not in `apart`.
    """

    ranks: torch.Tensor
    count_of_ranks: int
    limits: Limits
    apart: Limits | None

    @staticmethod
    def of(
        entries: torch.Tensor,
        members: torch.Tensor,
        ends: tuple[torch.Tensor, torch.Tensor],
        apart: torch.Tensor | None,
    ) -> RankRanges:
        """The ranks of entries and members of the own index. Other positions accept entries from
        `ends[0]` to `ends[1]`, both included, other than `apart`."""
        shape = np.broadcast_shapes(entries.shape, members.shape)
        values = entries.flatten().sort().values
        ranks = torch.searchsorted(values, entries.contiguous()).expand(shape)

        def limits(least: torch.Tensor, most: torch.Tensor) -> Limits:
            low = torch.searchsorted(values, least.contiguous())
            high = torch.searchsorted(values, most.contiguous(), right=True)
            return low, torch.maximum(low, high)

        count = values.numel()
        without = None
        if apart is not None:
            without = limits(torch.maximum(ends[0], apart), torch.minimum(ends[1], apart))
        return RankRanges(torch.where(members, ranks, count), count, limits(*ends), without)

    @cached_property
    def _wavelet(self) -> Wavelet:
        return Wavelet.of(self.ranks, self.count_of_ranks)

    @cached_property
    def _below(self) -> torch.Tensor:
        """How many positions have a rank below each rank; for a single row."""
        found = torch.bincount(self.ranks.flatten() + 1, minlength=self.count_of_ranks + 2)
        return found.cumsum(0)

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        batch, heads, length = self.ranks.shape
        if batch * heads == 1 and bool(((low == 0) & (high == length - 1)).all()):
            return self._taken(at, other, lambda least, end: self._below[end] - self._below[least])
        return self._taken(at, other, partial(self._wavelet.between, at, (low, high)))

    def _taken(
        self, at: At, other: torch.Tensor, count: Callable[..., torch.Tensor]
    ) -> torch.Tensor:
        """How many ranks each other position accepts; `count` counts those in low..high - 1."""
        found = count(*_read(self.limits, at, other))
        return found if self.apart is None else found - count(*_read(self.apart, at, other))

    def between(self, pairs: TilePairs) -> Verdict:
        """By the extremes of both tiles."""
        open_ = self._overlap(pairs)
        return Verdict.of(open_, ~open_)

    def among(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        """By the sorted ranks of each own tile, in which the limits of each position are found."""
        most = self.count_of_ranks

        def ordered() -> torch.Tensor:
            return by_tile(self.ranks, pairs.of.sides[0], most).sort(dim=-1).values

        ranks = pairs.of.once("ordered ranks", ordered)
        met = torch.zeros_like(pairs.own, dtype=torch.bool)
        for part in torch.arange(len(met), device=met.device).split(
            max(1, _POSITIONS_AT_ONCE // max(pairs.of.sides))
        ):
            met[part] = self._met(pairs.chosen(part), ranks)
        return met, torch.ones_like(met)

    def _met(self, pairs: TilePairs, ranks: torch.Tensor) -> torch.Tensor:
        """Whether own tiles hold a rank that some other position accepts; `ranks` are theirs,
        sorted, `[batch, heads, tiles, side]`."""
        batch, head = (
            index.clamp(max=size - 1) for index, size in zip(pairs.at, ranks.shape[:2], strict=True)
        )
        held = ranks[batch, head, pairs.own]

        def count(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
            return torch.searchsorted(held, high) - torch.searchsorted(held, low)

        first, last = pairs.other_ends
        offset = torch.arange(pairs.of.sides[1], device=held.device)
        other = torch.minimum(first[:, None] + offset, last[:, None])
        at = (pairs.at[0][:, None], pairs.at[1][:, None])
        found = self._taken(at, other, count)
        return ((found > 0) & rows_at(pairs.of.holds, at, other)).any(dim=-1)

    def _overlap(self, pairs: TilePairs) -> torch.Tensor:
        """Whether two tiles may have a common rank, by the extremes of their ranks."""
        most = self.count_of_ranks
        own = by_tile(self.ranks, pairs.of.sides[0], most)
        least_own = own.amin(dim=-1)
        most_own = torch.where(own < most, own, -1).amax(dim=-1)
        low, high = self.limits
        some = pairs.of.holds & (low < high)
        low = by_tile(torch.where(some, low, most), pairs.of.sides[1], most).amin(dim=-1)
        high = by_tile(torch.where(some, high, 0), pairs.of.sides[1], 0).amax(dim=-1)
        return (rows_at(least_own, pairs.at, pairs.own) < rows_at(high, pairs.at, pairs.other)) & (
            rows_at(most_own, pairs.at, pairs.own) >= rows_at(low, pairs.at, pairs.other)
        )


def _read(limits: Limits, at: At, other: torch.Tensor) -> Limits:
    return rows_at(limits[0], at, other), rows_at(limits[1], at, other)
