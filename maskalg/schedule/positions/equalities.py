"""Equal, or different, entries of an own and another position, by counting classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from math import prod
from typing import Final

import numpy as np
import torch

from .rests import Rest, Sides, TilePairs
from .sets import At, rows_at

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

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        if prod(pairs.shape) * pairs.sides[1] <= 4 * pairs.lengths[1]:
            none = torch.zeros_like(pairs.own, dtype=torch.bool)
            return none, none  # as quickly found position by position
        shape = np.broadcast_shapes(
            pairs.holds.shape[:2], *[classes.own.shape[:2] for _, classes in self.signed]
        )
        tiles = [(int(of.min()), int(of.max()) + 1) for of in (pairs.own, pairs.other)]
        total = [self._of_row(pairs.of, divmod(i, shape[1]), tiles) for i in range(prod(shape))]
        cells = torch.stack(total).view(*shape, -1)
        columns = tiles[1][1] - tiles[1][0]
        place = (pairs.own - tiles[0][0]) * columns + pairs.other - tiles[1][0]
        met = rows_at(cells, pairs.at, place) > 0
        return met, torch.ones_like(met)

    def _of_row(
        self, of: Sides, row: tuple[int, int], tiles: list[tuple[int, int]]
    ) -> torch.Tensor:
        """The count for each pair of tiles of a batch entry and head, `[own, other tiles]`.

        `tiles` are the first and the end of the own tiles, and of the other ones.
        """
        counts = []
        for number, (sign, classes) in enumerate(self.signed):
            sides = of.once(("classes", number, row), partial(_sides, classes, of, row))
            left, right = (_within(*each) for each in zip(sides, tiles, strict=True))
            counts.append(sign * _met(left, right, [end - first for first, end in tiles]))
        return torch.stack(counts).sum(dim=0)


Occurring = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # class, tile, how many positions


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
    return found // tiles, found % tiles, count


def _within(found: Occurring, tiles: tuple[int, int]) -> Occurring:
    """The classes of the tiles `first <= tile < end`, which are renumbered from 0 on."""
    inside = (found[1] >= tiles[0]) & (found[1] < tiles[1])
    class_, tile, count = (column[inside] for column in found)
    return class_, tile - tiles[0], count


def _met(left: Occurring, right: Occurring, sizes: list[int]) -> torch.Tensor:
    """How many pairs of positions have one class, for each pair of tiles `[own, other tiles]`."""
    begin = torch.searchsorted(right[0], left[0])
    joins = torch.searchsorted(right[0], left[0], right=True) - begin
    chosen = joins > 0
    begin, joins = begin[chosen], joins[chosen]
    class_, tile, count = (column[chosen] for column in left)
    place, different = _numbered(class_)
    if different * sizes[0] * sizes[1] < _PRODUCTS * int(joins.sum()):
        return _by_product((place, tile, count), class_, right, different, sizes)
    found = torch.zeros(sizes[0] * sizes[1], dtype=torch.int64, device=class_.device)
    for part in _portions(joins):
        owner = torch.arange(len(joins), device=class_.device)[part].repeat_interleave(joins[part])
        start = (joins[part].cumsum(0) - joins[part]).repeat_interleave(joins[part])
        partner = begin[owner] + torch.arange(len(owner), device=class_.device) - start
        cell = tile[owner] * sizes[1] + right[1][partner]
        found.index_add_(0, cell, count[owner] * right[2][partner])
    return found.view(sizes[0], sizes[1])


def _numbered(ordered: torch.Tensor) -> tuple[torch.Tensor, int]:
    found, place = ordered.unique_consecutive(return_inverse=True)
    return place, len(found)


def _portions(sizes: torch.Tensor) -> list[slice]:
    """Slices of about `_PAIRS_AT_ONCE` pairs each."""
    group = (sizes.cumsum(0) - 1) // _PAIRS_AT_ONCE
    ends = group.unique_consecutive(return_counts=True)[1].cumsum(0).tolist()
    return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def _by_product(
    left: Occurring,
    class_: torch.Tensor,
    right: Occurring,
    different: int,
    sizes: list[int],
) -> torch.Tensor:
    """Counts as a product of two matrices, tiles by classes; exact below 2**53."""
    names = class_.unique_consecutive()
    place = torch.searchsorted(names, right[0]).clamp(max=different - 1)
    same = names[place] == right[0]
    sides = (left, (place[same], right[1][same], right[2][same]))
    own, other = (
        torch.zeros(size, different, dtype=torch.float64, device=class_.device).index_put_(
            (tile, number), count.to(torch.float64)
        )
        for size, (number, tile, count) in zip(sizes, sides, strict=True)
    )
    return (own @ other.T).to(torch.int64)
