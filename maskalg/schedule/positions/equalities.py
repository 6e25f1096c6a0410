"""Equal, or different, entries of an own and another position, by counting classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, combinations
from math import prod
from typing import Final

import numpy as np
import torch

from .rests import Rest, Sides, TilePairs, Verdict, by_tile
from .sets import At, rows_at, spread

_PAIRS_AT_ONCE: Final = 1 << 22
_PRODUCTS: Final = 64  # of matrices, in the time of one pair of tiles joined by a class


@dataclass(frozen=True)
class Classes:
    """Own positions sorted by (batch entry and head, class, position), as one number each.

    `wanted` `[batch, heads, other positions]` is the row and class that each other position needs,
    and `own` the row and class of each own position, -1 unless it is a member; `sorted` `[own
    positions of all rows]` ends with positions that are not members.
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
        """How many members in low..high have the class that `other` needs."""
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
    # Rows begin as classes of their own.
    row = torch.arange(prod(rows), device=members.device).view(*rows, 1)
    own, other = (row.expand(*rows, length) for length in lengths)
    for number, (own_entries, other_entries) in enumerate(pairs):
        alone = number == 0 and prod(rows) == 1
        own, other = _refined(own, other, own_entries, other_entries, alone=alone)
    place = torch.arange(lengths[0], device=members.device)
    keys = own * lengths[0] + place
    # Positions that are not members go past every class, so that no count depends on the device.
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
    """Classes split by one more pair of entries, and renumbered so that they stay small.

    `alone`: all positions are still of one class.
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
    """The rank of each value among the distinct ones; `unique` would wait for the device."""
    ordered, order = values.sort()
    first = torch.ones_like(ordered)
    first[1:] = (ordered[1:] != ordered[:-1]).to(ordered.dtype)
    ranks = first.cumsum(0) - 1
    return torch.empty_like(ranks).scatter_(0, order, ranks)


@dataclass(frozen=True)
class Equalities(Rest):
    """Equalities, and inequalities, of entries: signed sums of counts of own positions in classes.

    Positions with an equality that must not hold are subtracted by inclusion and exclusion.
    """

    signed: tuple[tuple[int, Classes], ...]

    @staticmethod
    def of(
        pairs: list[list[tuple[torch.Tensor, torch.Tensor]]],
        holds: list[bool],
        members: torch.Tensor,
        lengths: tuple[int, int],
    ) -> Equalities:
        """The condition on lists of pairs of entries (as in `classes_of`): a list that `holds` has
        all of its pairs equal, and another list does not."""
        wanted = [pair for one, same in zip(pairs, holds, strict=True) if same for pair in one]
        unwanted = [one for one, same in zip(pairs, holds, strict=True) if not same]
        return Equalities(
            tuple(
                ((-1) ** size, classes_of([*wanted, *chain(*extra)], members, lengths))
                for size in range(len(unwanted) + 1)
                for extra in combinations(unwanted, size)
            )
        )

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        total = torch.zeros_like(low)
        for sign, classes in self.signed:
            total = total + sign * classes.between(at, other, low, high)
        return total

    def between(self, pairs: TilePairs) -> Verdict:
        if 4 * prod(pairs.shape) * pairs.of.sides[1] <= pairs.of.lengths[1]:
            none = torch.zeros_like(pairs.own, dtype=torch.bool)
            return Verdict.of(none, none)  # as quickly found position by position
        shape = np.broadcast_shapes(
            pairs.of.holds.shape[:2], *[classes.own.shape[:2] for _, classes in self.signed]
        )
        tiles = [(int(of.min()), int(of.max()) + 1) for of in (pairs.own, pairs.other)]
        total = [self._of_row(pairs.of, divmod(i, shape[1]), tiles) for i in range(prod(shape))]
        columns = tiles[1][1] - tiles[1][0]
        place = (pairs.own - tiles[0][0]) * columns + pairs.other - tiles[1][0]
        found = rows_at(torch.stack(total).view(*shape, -1), pairs.at, place)
        others = pairs.of.once(
            "others", lambda: by_tile(pairs.of.holds, pairs.of.sides[1], False).sum(dim=-1)
        )
        first, last = pairs.own_ends
        every = (last - first + 1) * rows_at(others, pairs.at, pairs.other)
        some = found > 0
        return Verdict(some, torch.ones_like(some), found == every)

    def _of_row(
        self, of: Sides, row: tuple[int, int], tiles: list[tuple[int, int]]
    ) -> torch.Tensor:
        """The count for each pair of tiles of a batch entry and head, `[own, other tiles]`.

        `tiles` are the first and the end of the own tiles, and of the other ones.
        """
        counts = []
        for number, (sign, classes) in enumerate(self.signed):
            sides = of.once(("classes", number, row), partial(_sides, classes, of, row))
            left, right = (side.within(*ends) for side, ends in zip(sides, tiles, strict=True))
            counts.append(sign * _met(left, right))
        return torch.stack(counts).sum(dim=0)


@dataclass(frozen=True)
class Occurring:
    """The classes that tiles `0 <= tile < tiles` have: a class and a tile, and how many positions
    of the tile have it; sorted by class, then by tile."""

    class_: torch.Tensor
    tile: torch.Tensor
    count: torch.Tensor
    tiles: int

    @cached_property
    def _by_tile(self) -> tuple[torch.Tensor, torch.Tensor]:
        ordered, order = self.tile.sort(stable=True)
        return ordered, order

    def within(self, first: int, end: int) -> Occurring:
        """The classes of the tiles `first <= tile < end`, which are renumbered from 0 on."""
        if (first, end) == (0, self.tiles):
            return self
        ordered, order = self._by_tile
        low, high = torch.searchsorted(ordered, ordered.new_tensor([first, end])).tolist()
        chosen = order[low:high].sort().values
        columns = (self.class_[chosen], self.tile[chosen] - first, self.count[chosen])
        return Occurring(*columns, end - first)


def _sides(classes: Classes, of: Sides, row: tuple[int, int]) -> tuple[Occurring, Occurring]:
    """The classes that own tiles have, and the classes that other tiles need."""
    own, other, holds = (
        table[min(row[0], table.shape[0] - 1), min(row[1], table.shape[1] - 1)]
        for table in (classes.own, classes.wanted, of.holds)
    )
    return _occurring(own, of.sides[0]), _occurring(torch.where(holds, other, -1), of.sides[1])


def _occurring(classes: torch.Tensor, side: int) -> Occurring:
    """The classes >= 0 of each tile, sorted by class."""
    tiles = -(-len(classes) // side)
    tile = torch.arange(len(classes), device=classes.device) // side
    keys = (classes * tiles + tile)[classes >= 0]
    found, count = keys.unique(return_counts=True)
    return Occurring(found // tiles, found % tiles, count, tiles)


def _met(left: Occurring, right: Occurring) -> torch.Tensor:
    """How many pairs of positions have one class, for each pair of tiles `[own, other tiles]`."""
    begin = torch.searchsorted(right.class_, left.class_)
    end = torch.searchsorted(right.class_, left.class_, right=True)
    chosen = end > begin
    begin, end = begin[chosen], end[chosen]
    joins = end - begin
    class_, tile, count = (each[chosen] for each in (left.class_, left.tile, left.count))
    found = torch.zeros(left.tiles * right.tiles, dtype=torch.int64, device=class_.device)
    names, place, entries = class_.unique_consecutive(return_inverse=True, return_counts=True)
    if len(names) * len(found) < _PRODUCTS * int(joins.sum()):
        # A product of two matrices, tiles by classes; exact below 2**53.
        first = entries.cumsum(0) - entries
        owner, partner = spread(begin[first], end[first])
        sides = (
            (left.tiles, tile, place, count),
            (right.tiles, right.tile[partner], owner, right.count[partner]),
        )
        own, other = (
            torch.zeros(size, len(names), dtype=torch.float64, device=class_.device).index_put_(
                (tile, number), count.to(torch.float64)
            )
            for size, tile, number, count in sides
        )
        return (own @ other.T).to(torch.int64)
    for part in _portions(joins):
        owner, partner = spread(begin[part], end[part])
        cell = tile[part][owner] * right.tiles + right.tile[partner]
        found.index_add_(0, cell, count[part][owner] * right.count[partner])
    return found.view(left.tiles, right.tiles)


def _portions(sizes: torch.Tensor) -> list[slice]:
    """Slices of about `_PAIRS_AT_ONCE` pairs each."""
    group = (sizes.cumsum(0) - 1) // _PAIRS_AT_ONCE
    ends = group.unique_consecutive(return_counts=True)[1].cumsum(0).tolist()
    return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
