"""Pairs of tiles, one of positions of the own and one of the other index of a section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import pad

from .sets import At, rows_at


@dataclass(frozen=True)
class TilePairs:
    """Pairs to decide: every other position that `holds` may take every own position of its pair.

    `at` (batch entry and head), `own` and `other` (numbers of tiles) are `[n]`; `holds` is
    `[batch, heads, positions of the other index]`. Sides and lengths are of the own index, then of
    the other one.
    """

    at: At
    own: torch.Tensor
    other: torch.Tensor
    holds: torch.Tensor
    sides: tuple[int, int]
    lengths: tuple[int, int]

    @property
    def own_ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """First and last own position of each pair."""
        return _ends(self.own, self.sides[0], self.lengths[0])

    @property
    def other_ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """First and last other position of each pair."""
        return _ends(self.other, self.sides[1], self.lengths[1])

    def all_hold(self) -> torch.Tensor:
        """Whether every other position of a pair holds, `[n]`."""
        every = by_tile(self.holds, self.sides[1], True).all(dim=-1)
        return rows_at(every, self.at, self.other)

    def chosen(self, which: torch.Tensor) -> TilePairs:
        """Those of the pairs."""
        at = (self.at[0][which], self.at[1][which])
        return TilePairs(
            at, self.own[which], self.other[which], self.holds, self.sides, self.lengths
        )


class Rest(Protocol):
    """What a section asks of an own position beyond its bounds.

    Ranges `low..high` of own positions include both ends and are not empty.
    """

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        """Whether some own position in low..high satisfies it with the other one."""

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        """How many do."""

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether some pair of positions of two tiles satisfies it, and whether that is known."""


def by_tile(entries: torch.Tensor, side: int, fill: bool | int) -> torch.Tensor:
    """Entries `[batch, heads, length]` as `[batch, heads, tiles, side]`, filled up at the end."""
    missing = -entries.shape[-1] % side
    whole = pad(entries, (0, missing), value=fill) if missing else entries
    return whole.reshape(*entries.shape[:2], -1, side)


def _ends(tile: torch.Tensor, side: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tile * side, (tile * side + side - 1).clamp(max=length - 1)
