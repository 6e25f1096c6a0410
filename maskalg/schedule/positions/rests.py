"""A section's conditions on own positions besides limits, for one position or whole tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch.nn.functional import pad

from .sets import At, PositionSet, rows_at

Table = TypeVar("Table")
Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOWEST: Final = -(2**63 - 1024)  # below every entry but the last thousand; exact as a double


@dataclass(frozen=True, eq=False)
class Sides:
    """The tiles of own and of other positions in a call, and tables of all of them.

    Only other positions in `holds` `[batch, heads, other positions]` count. Sides of tiles and
    lengths are given for the own index, then for the other one.
    """

    holds: torch.Tensor
    sides: tuple[int, int]
    lengths: tuple[int, int]
    _tables: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, name: Hashable, make: Callable[[], Table]) -> Table:
        """A table of all tiles, made when it is first used."""
        if name not in self._tables:
            self._tables[name] = make()
        return cast(Table, self._tables[name])


@dataclass(frozen=True)
class TilePairs:
    """Pairs of tiles, decided as if the limits of every other position included the own tile.

    `at` (batch entry and head), `own` and `other` (indices of tiles) are broadcast with each other;
    `of` are the tiles.
    """

    at: At
    own: torch.Tensor
    other: torch.Tensor
    of: Sides

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the pairs, broadcast."""
        return np.broadcast_shapes(*[each.shape for each in (*self.at, self.own, self.other)])

    @property
    def own_ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """First and last own position of each pair."""
        return _ends(self.own, self.of.sides[0], self.of.lengths[0])

    @property
    def other_ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """First and last other position of each pair."""
        return _ends(self.other, self.of.sides[1], self.of.lengths[1])

    def all_hold(self) -> torch.Tensor:
        """Whether every other position of a pair is in `holds`."""
        every = self.of.once(
            "all hold", lambda: by_tile(self.of.holds, self.of.sides[1], True).all(dim=-1)
        )
        return rows_at(every, self.at, self.other)

    def some_hold(self) -> torch.Tensor:
        """Whether some other position of a pair is in `holds`."""
        some = self.of.once(
            "some hold", lambda: by_tile(self.of.holds, self.of.sides[1], False).any(dim=-1)
        )
        return rows_at(some, self.at, self.other)

    def chosen(self, which: torch.Tensor) -> TilePairs:
        """The chosen pairs, of pairs `[n]`."""
        at = (self.at[0][which], self.at[1][which])
        return TilePairs(at, self.own[which], self.other[which], self.of)


class Verdict(NamedTuple):
    """What is known of the condition for the pairs of positions of two tiles.

    Attributes:
        some: whether some pair satisfies it.
        known: whether `some` is known; otherwise it says nothing.
        every: whether every pair whose other position counts surely satisfies it.
    """

    some: torch.Tensor
    known: torch.Tensor
    every: torch.Tensor

    @staticmethod
    def of(some: torch.Tensor, known: torch.Tensor | None = None) -> Verdict:
        """Always known by default; no tile is known to satisfy it with every pair."""
        return Verdict(
            some, torch.ones_like(some) if known is None else known, torch.zeros_like(some)
        )


class Rest(ABC):
    """A section's condition on an own position besides its limits.

    Ranges `low..high` of own positions include both ends and are not empty.
    """

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        """Whether some own position in low..high satisfies it with the other position."""
        return self.count(at, other, low, high) > 0

    @abstractmethod
    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        """How many own positions in low..high do."""

    @abstractmethod
    def between(self, pairs: TilePairs) -> Verdict:
        """What is known of two tiles; the results are broadcast as the pairs are."""

    def among(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether some pair of positions of two tiles satisfies it, and whether that is known.

        Asked for few pairs `[n]`: those that `between` leaves open, or that a limit cuts.
        """
        known = torch.zeros_like(pairs.own, dtype=torch.bool)
        return ~known, known


def by_tile(entries: torch.Tensor, side: int, fill: bool | int) -> torch.Tensor:
    """Entries `[batch, heads, length]` as `[batch, heads, tiles, side]`, padded at the end."""
    missing = -entries.shape[-1] % side
    whole = pad(entries, (0, missing), value=fill) if missing else entries
    return whole.reshape(*entries.shape[:2], -1, side)


def _ends(tile: torch.Tensor, side: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tile * side, (tile * side + side - 1).clamp(max=length - 1)


@dataclass(frozen=True)
class Maxima:
    """`table[j, ..., x]` joins the entries x .. x + 2**j - 1, `[levels, batch, heads, length]`.

    `join` is idempotent: a maximum, or the union of bits.
    """

    table: torch.Tensor
    join: Join

    @staticmethod
    def of(entries: torch.Tensor, longest: int, join: Join) -> Maxima:
        """The table for ranges of up to `longest` entries, of entries `[batch, heads, length]`."""
        levels = [entries]
        while 2 ** len(levels) <= min(longest, entries.shape[-1]):
            reach = 2 ** (len(levels) - 1)
            last = levels[-1]
            # No range of that length starts at the places past the end.
            later = torch.cat([last[..., reach:], last[..., -reach:]], dim=-1)
            levels.append(join(last, later))
        return Maxima(torch.stack(levels), join)

    def over(self, at: At, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """The entries low..high, both included, joined."""
        exponent = torch.frexp((high - low + 1).to(torch.float64)).exponent.to(torch.int64) - 1
        first = self._entry(at, low, exponent)
        return self.join(first, self._entry(at, high + 1 - (1 << exponent), exponent))

    def _entry(self, at: At, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        batch = at[0] if self.table.shape[1] > 1 else torch.zeros_like(at[0])
        head = at[1] if self.table.shape[2] > 1 else torch.zeros_like(at[1])
        return self.table[level, batch, head, x]


def union(bits: torch.Tensor) -> torch.Tensor:
    """The union of the bits along the last dimension."""
    while bits.shape[-1] > 1:
        if bits.shape[-1] % 2:
            bits = pad(bits, (0, 1))
        bits = bits[..., ::2] | bits[..., 1::2]
    return bits[..., 0]


@dataclass(frozen=True)
class Members(Rest):
    """The condition that the own position is in a set."""

    members: PositionSet

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self.members.between(at, low, high)

    def between(self, pairs: TilePairs) -> Verdict:
        return Verdict.of(self.members.between(pairs.at, *pairs.own_ends) > 0)


@dataclass(frozen=True)
class Distances(Rest):
    """The condition that the distance q - k is in a set; distance d is its position `d + zero`."""

    members: PositionSet
    zero: int
    by_query: bool  # whether the query is the own index

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        return self._within(at, (low, high), (other, other))

    def between(self, pairs: TilePairs) -> Verdict:
        # Every distance between the extremes occurs if all other positions count.
        met = self._within(pairs.at, pairs.own_ends, pairs.other_ends) > 0
        return Verdict.of(met, pairs.all_hold() | ~met)

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
class AtLeast(Rest):
    """The condition that the own position's entry is at least that of the other position.

    Positions that are not members have far lower `entries` `[batch, heads, own]` than all others;
    `ordered` is the same condition by ranks, for counting.
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

    def between(self, pairs: TilePairs) -> Verdict:
        def extremes() -> tuple[torch.Tensor, torch.Tensor]:
            wanted = torch.where(pairs.of.holds, self.least, -LOWEST)
            return (
                by_tile(self.entries, pairs.of.sides[0], LOWEST).amax(dim=-1),
                by_tile(wanted, pairs.of.sides[1], -LOWEST).amin(dim=-1),
            )

        largest, least = pairs.of.once("extremes", extremes)
        return Verdict.of(
            rows_at(largest, pairs.at, pairs.own) >= rows_at(least, pairs.at, pairs.other)
        )
