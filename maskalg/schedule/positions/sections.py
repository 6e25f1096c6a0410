"""Sections with values put in: which tiles hold a pair that a clause keeps, position by position.

For every position of the other index, the limits of the own index are computed once. The section's
other condition becomes a table that decides whole ranges of own positions: counts of members,
sorted classes of equal entries, maxima over powers of two. Ranks and a wavelet matrix would serve
all of these, but take six to fifteen times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ...engine.evaluate import Environment, narrowed
from ...engine.memory import MEMORY
from ...engine.widths import LEAST_64, MOST_64, fits_64
from ...formula import nodes
from ...formula.comparisons import is_negative
from ...formula.nodes import Node, conjunction
from ...formula.separation import terms_of
from ...proof.closed_forms import Section
from ..intervals.intervals import Rows
from .equalities import Equalities
from .rank_ranges import RankRanges
from .relations import related
from .rests import LOWEST, AtLeast, Distances, Members, Rest, Sides, TilePairs, by_tile
from .sets import PositionSet, at_places, over_positions, rows_at

_POSITIONS_AT_ONCE: Final = 1 << 20
_APART: Final = 4  # tiles of a box looked at together in the time of one by itself
_SAMPLED_FIRST: Final = 64  # one of so many positions of a tile
_SAMPLED_NEXT: Final = 8
_RADIX: Final = 2**62  # of the digits of integers past 64 bits


@dataclass(frozen=True)
class OwnLimits:
    """The limits of the other positions that count, tile by tile, sorted by the lower limit.

    Attributes:
        starts: the lower limits of all rows and tiles as one increasing sequence, flat: `length
            + 1` times the index of row and tile is added to each.
        reach: `[batch, heads, tiles * side]`, the highest upper limit up to a place in that order.
        latest, earliest: `[batch, heads, tiles]`, the highest lower and the lowest upper limit.
        some: bool `[batch, heads, tiles]`, whether a position of the tile counts.
        length: of the own index; positions that do not count start there.
        side: of the tiles of other positions.
    """

    starts: torch.Tensor
    reach: torch.Tensor
    latest: torch.Tensor
    earliest: torch.Tensor
    some: torch.Tensor
    length: int
    side: int

    @staticmethod
    def of(
        low: torch.Tensor, high: torch.Tensor, holds: torch.Tensor, length: int, side: int
    ) -> OwnLimits:
        """The limits from `[batch, heads, other]`, both included and within 0..length - 1."""
        low, high, holds = torch.broadcast_tensors(low, high, holds)
        latest = by_tile(torch.where(holds, low, 0), side, 0).amax(dim=-1)
        earliest = by_tile(torch.where(holds, high, length), side, length).amin(dim=-1)
        low, order = by_tile(torch.where(holds, low, length), side, length).sort(dim=-1)
        high = by_tile(torch.where(holds, high, -1), side, -1).gather(-1, order)
        tile = torch.arange(latest.numel(), device=low.device).view(*latest.shape, 1)
        return OwnLimits(
            (low + tile * (length + 1)).flatten(),
            high.cummax(dim=-1).values.flatten(2),
            latest,
            earliest,
            by_tile(holds, side, False).any(dim=-1),
            length,
            side,
        )

    def meet(self, pairs: TilePairs) -> torch.Tensor:
        """Whether the limits of some other position include an own one, for pairs of tiles."""
        first, last = pairs.own_ends
        tiles = torch.arange(self.latest.numel(), device=first.device).view(self.latest.shape)
        tile = rows_at(tiles, pairs.at, pairs.other)
        upto = torch.searchsorted(self.starts, tile * (self.length + 1) + last, right=True)
        count = upto - tile * self.side
        place = pairs.other * self.side + (count - 1).clamp(min=0)
        return (count > 0) & (rows_at(self.reach, pairs.at, place) >= first)

    def cover(self, pairs: TilePairs) -> torch.Tensor:
        """Whether the limits of every other position that counts include the whole own tile."""
        first, last = pairs.own_ends
        latest = rows_at(self.latest, pairs.at, pairs.other)
        return (latest <= first) & (rows_at(self.earliest, pairs.at, pairs.other) >= last)


@dataclass(frozen=True)
class PreparedSection:
    """A section over all positions of a call.

    `low`, `high` (own positions) and `holds` are `[batch, heads, other positions]`; where `holds`,
    low <= high. `rest` is the condition on own positions besides these limits.
    """

    section: Section
    low: torch.Tensor
    high: torch.Tensor
    holds: torch.Tensor
    rest: Rest | None
    lengths: tuple[int, int]  # of the own and of the other index

    def sides(self, block: tuple[int, int]) -> Sides:
        """The tiles of a call, for `tiles`."""
        return Sides(
            self.holds, block if self.section.own == "q_idx" else block[::-1], self.lengths
        )

    def tiles(self, asked: torch.Tensor, first: int, of: Sides) -> torch.Tensor:
        """Which of the `asked` tiles hold such a pair.

        Whole tiles are tried first. They are decided if the limits of every other position include
        the whole own tile, or if there is no such pair even without limits. The others are decided
        position by position.

        Args:
            asked: bool `[batch, heads, rows, columns]`, some of them True.
            first: the first of the rows.
            of: the tiles of the call.
        """
        line, column = (asked.any(dim=axis).flatten(0, 1).any(dim=0).nonzero() for axis in (3, 2))
        corner = asked.new_tensor([0, 0, int(line[0]), int(column[0])], dtype=torch.int64)
        box = asked[:, :, int(line[0]) : int(line[-1]) + 1, int(column[0]) : int(column[-1]) + 1]
        limits = of.once(
            "limits",
            lambda: OwnLimits.of(self.low, self.high, self.holds, self.lengths[0], of.sides[1]),
        )
        corner[2] += first
        found = torch.zeros_like(box)
        if box.numel() <= _APART * int(box.sum()):
            places = [
                (torch.arange(size, device=box.device) + begin).view([-1] + [1] * (3 - axis))
                for axis, (size, begin) in enumerate(zip(box.shape, corner.tolist(), strict=True))
            ]
            found, open_, by_limits = self._as_wholes(self._pairs(places, of), limits)
            found = box & found
            left = (box & open_).nonzero()
            by_limits = by_limits.expand(box.shape)[left.unbind(dim=1)]
        else:
            left = box.nonzero()
            pairs = self._pairs((left + corner).unbind(dim=1), of)
            met, open_, by_limits = self._as_wholes(pairs, limits)
            found[left.unbind(dim=1)] = met
            left, by_limits = left[open_], by_limits[open_]
        pairs = self._pairs((left + corner).unbind(dim=1), of)
        found[left.unbind(dim=1)] = self._one_by_one(pairs, by_limits, limits)
        met = torch.zeros_like(asked)
        met[:, :, int(line[0]) : int(line[-1]) + 1, int(column[0]) : int(column[-1]) + 1] = found
        return met

    def _pairs(self, places: Sequence[torch.Tensor], of: Sides) -> TilePairs:
        """Tiles by batch entry, head, row and column."""
        batch, head, row, column = places
        own, other = (row, column) if self.section.own == "q_idx" else (column, row)
        return TilePairs((batch, head), own, other, of)

    def _as_wholes(
        self, pairs: TilePairs, limits: OwnLimits
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Which pairs of tiles hold such a pair by facts about whole tiles, and which may; of
        these, the ones that limits alone decide."""
        some, covered = rows_at(limits.some, pairs.at, pairs.other), limits.cover(pairs)
        met = some & covered
        if self.rest is None:
            return met, some & ~met, torch.ones_like(met)
        found, known, every = self.rest.between(pairs)
        met = met & found & known
        return met, some & (found | ~known) & ~met, every

    def _one_by_one(
        self, pairs: TilePairs, by_limits: torch.Tensor, limits: OwnLimits
    ) -> torch.Tensor:
        """Which of the pairs `[n]` of tiles, left open by `_as_wholes`, hold such a pair.

        Limits alone decide those in `by_limits`.
        """
        met = limits.meet(pairs)
        left = (met & ~by_limits).nonzero()[:, 0]
        if self.rest is None or not len(left):
            return met
        pairs_left = pairs.chosen(left)
        found, known = self.rest.among(pairs_left)
        met[left] = found | ~known
        left = left[~known | (found & ~limits.cover(pairs_left))]
        # A few positions show a tile that holds many such pairs.
        every = torch.arange(pairs.of.sides[1], device=left.device)
        for step in (_SAMPLED_FIRST, _SAMPLED_NEXT, 1):
            if step == 1 or step < pairs.of.sides[1]:
                found = self._by_position(pairs.chosen(left), every[::step])
                met[left] = found
                left = left[~found]
        return met

    def _by_position(self, pairs: TilePairs, offsets: torch.Tensor) -> torch.Tensor:
        """Which pairs hold one for other positions at `offsets` in their tile."""
        assert self.rest is not None
        found = [torch.zeros(0, dtype=torch.bool, device=offsets.device)]
        for part in torch.arange(len(pairs.own), device=offsets.device).split(
            max(1, _POSITIONS_AT_ONCE // len(offsets))
        ):
            some = pairs.chosen(part)
            at = (some.at[0][:, None], some.at[1][:, None])
            first, last = some.own_ends
            # A tile cut by the length repeats its last position, which changes nothing.
            other = some.other[:, None] * pairs.of.sides[1] + offsets
            other = other.clamp(max=self.lengths[1] - 1)
            low = torch.maximum(rows_at(self.low, at, other), first[:, None])
            high = torch.minimum(rows_at(self.high, at, other), last[:, None])
            kept = rows_at(self.holds, at, other) & (low <= high)
            high = torch.where(kept, high, first[:, None])
            low = torch.where(kept, low, first[:, None])
            found.append((kept & self.rest.some(at, other, low, high)).any(dim=-1))
        return torch.cat(found)

    def counts(self, batch: int, heads: int) -> torch.Tensor:
        """How many own positions each other position accepts, `[batch, heads, positions]`."""
        device = self.low.device
        shape = (batch, heads, self.lengths[1])
        row = torch.arange(batch, device=device).view(-1, 1, 1)
        head = torch.arange(heads, device=device).view(1, -1, 1)
        other = torch.arange(self.lengths[1], device=device).view(1, 1, -1)
        low, high = self.low.expand(shape), self.high.expand(shape)
        if self.rest is None:
            count = high - low + 1
        else:
            # The ranges of positions that do not count may be empty.
            low = torch.minimum(low, high)
            count = self.rest.count((row, head), other, low, high)
        return torch.where(self.holds, count, 0)


def prepared(section: Section, rows: Rows, block: tuple[int, int]) -> PreparedSection | None:
    """The section over the positions of a call, remembered while its tensors live unchanged.

    None where a table of pairs is too large for it.
    """
    env, extents = rows.environment, rows.extents
    own_block = block[0] if section.own == "q_idx" else block[1]
    lengths = (extents.q_len, extents.kv_len)
    if section.own == "kv_idx":
        lengths = lengths[::-1]
    sizes = (env.indices["batch"].numel(), env.indices["head"].numel())
    equalities = tuple(node for f, g, _ in section.equal for node in (f, g))
    relation = section.relation
    related_nodes = () if relation is None else (relation.node, relation.f, relation.g)
    return MEMORY.recall(
        (section, lengths, sizes, own_block, env.device),
        (
            *section.lows,
            *section.highs,
            *section.others,
            *section.members,
            *equalities,
            *(node for pair in section.order for node in pair),
            *section.distances,
            *related_nodes,
        ),
        env.values,
        lambda: section_over(section, lengths, own_block, env),
    )


def section_over(
    section: Section, lengths: tuple[int, int], own_block: int, env: Environment
) -> PreparedSection | None:
    """The section over `lengths` positions of the own and the other index, not remembered."""

    def over_other(node: Node) -> torch.Tensor:
        return over_positions(node, section.other, lengths[1], env)

    low = torch.zeros((1, 1, lengths[1]), dtype=torch.int64, device=env.device)
    high = torch.full_like(low, lengths[0] - 1)
    low, high = narrowed(low, high, section.lows, section.highs, over_other)
    holds = over_other(conjunction(*section.others)) & (low <= high)
    last = max(lengths[0] - 1, 0)
    low, high = low.clamp(0, last), high.clamp(0, last)
    members = over_positions(conjunction(*section.members), section.own, lengths[0], env)
    rest: Rest | None = None
    if section.order:
        rest = _ordered(section, lengths, members, own_block, env)
        if rest is None:
            return None
    elif section.equal:
        rest = _equal(section, lengths, members, env)
    elif section.relation is not None:
        rest = related(section, lengths, members, own_block, env)
        if rest is None:
            return None
    elif section.distances:
        rest = _distant(section, lengths, env)
    elif section.members:
        rest = Members(PositionSet(members))
    return PreparedSection(section, low, high, holds, rest, lengths)


def _distant(section: Section, lengths: tuple[int, int], env: Environment) -> Distances:
    """The condition that some distance q - k, of a range of q (or k) and one k (or q), is in a
    set."""
    by_query = section.own == "q_idx"
    q_len, kv_len = lengths if by_query else lengths[::-1]
    # Distance d is evaluated at query d and key 0.
    places = {
        "kv_idx": torch.zeros((1, 1, 1), dtype=torch.int64, device=env.device),
        "q_idx": torch.arange(1 - kv_len, q_len, device=env.device).view(1, 1, -1),
    }
    kept = at_places(places, conjunction(*section.distances), env)
    members = PositionSet(kept.expand(*kept.shape[:2], q_len + kv_len - 1))
    return Distances(members, kv_len - 1, by_query)


def _ordered(
    section: Section,
    lengths: tuple[int, int],
    members: torch.Tensor,
    own_block: int,
    env: Environment,
) -> Rest | None:
    """The condition f(own) between two values of the other position, for some member in a range.

    With one limit only, the maximum of f over the range decides. None if f may exceed 64 bits, by
    the dtypes of tables, and on the CPU by their entries.
    """
    first = section.order[0][0]
    base = nodes.negate(first) if is_negative(terms_of(first)[0]) else first
    own = over_positions(base, section.own, lengths[0], env)
    if not _has_64(base, own, env):
        return None
    ends = torch.iinfo(torch.int64)
    least = torch.full((1, 1, lengths[1]), ends.min, device=env.device)
    most = torch.full_like(least, ends.max)
    for f, g in section.order:
        from_below = f == base
        limit, never = _limit(g, from_below, section.other, lengths[1], env)
        if from_below:
            least = torch.maximum(least, limit)
        else:
            most = torch.minimum(most, limit)
        least, most = torch.where(never, ends.max, least), torch.where(never, ends.min, most)
    apart = None
    for f, g, holds in section.equal:
        wanted = g if f == base else nodes.negate(g)
        value = over_positions(wanted, section.other, lengths[1], env).to(torch.int64)
        if not _has_64(wanted, value, env):
            return None
        if holds:
            least, most = torch.maximum(least, value), torch.minimum(most, value)
        else:
            apart = value

    ranges = RankRanges.of(own, members, (least, most), apart)
    if section.equal or any(f != first for f, _ in section.order):
        return ranges
    # By ranks: these have negatives, and a number above all of them.
    low, high = ranges.limits
    if first == base:
        ranks = ranges.ranks
        limits = torch.where(low < high, low, ranges.count_of_ranks)
    else:
        ranks = -ranges.ranks
        limits = torch.where(low < high, 1 - high, 1)
    return AtLeast(torch.where(members, ranks, LOWEST), limits, own_block, lambda: ranges)


def _has_64(node: Node, found: torch.Tensor, env: Environment) -> bool:
    """Whether an integer formula fits 64 bits; it is evaluated as an end of them if larger."""
    if fits_64(node, env.values):
        return True
    ends = torch.iinfo(torch.int64)
    # Entries are read on the CPU only: a GPU would be waited for.
    return found.device.type == "cpu" and not bool(
        ((found == ends.min) | (found == ends.max)).any()
    )


def _limit(
    g: Node, from_below: bool, other: str, length: int, env: Environment
) -> tuple[torch.Tensor, torch.Tensor]:
    """The least x with x + g >= 0, or the most with g >= x; and where no x of 64 bits is one."""
    wanted = nodes.negate(g) if from_below else g
    limit = over_positions(wanted, other, length, env)
    if fits_64(wanted, env.values):
        return limit, torch.zeros_like(limit, dtype=torch.bool)
    past = (
        nodes.ge(wanted, nodes.const(MOST_64 + 1))
        if from_below
        else nodes.ge(nodes.const(LEAST_64 - 1), wanted)
    )
    return limit, over_positions(past, other, length, env)


def _equal(
    section: Section, lengths: tuple[int, int], members: torch.Tensor, env: Environment
) -> Equalities:
    """Entries that are equal for all pairs with `holds`, and different for all others."""
    pairs = [
        [
            (
                over_positions(of_own, section.own, lengths[0], env),
                over_positions(of_other, section.other, lengths[1], env),
            )
            for of_own, of_other in zip(*_in_64(f, g, env), strict=True)
        ]
        for f, g, _ in section.equal
    ]
    return Equalities.of(pairs, [holds for _, _, holds in section.equal], members, lengths)


def _in_64(f: Node, g: Node, env: Environment) -> tuple[list[Node], list[Node]]:
    """Integers of 64 bits that are equal if and only if f and g are: f and g, or their digits."""
    found: tuple[list[Node], list[Node]] = [], []
    radix = nodes.const(_RADIX)
    while any(side.kind == "int" and not fits_64(side, env.values) for side in (f, g)):
        for digits, side in zip(found, (f, g), strict=True):
            digits.append(nodes.mod(side, radix))
        f, g = nodes.floordiv(f, radix), nodes.floordiv(g, radix)
    return [*found[0], f], [*found[1], g]
