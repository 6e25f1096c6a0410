"""Sections with values put in: which tiles hold a pair that a clause keeps, position by position.

For every position of the other index the bounds of the own index are computed once. What else the
own position must satisfy becomes a table that answers for a whole range of positions at once:
counts of members, sorted classes of equal entries, maxima over powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import torch

from ..evaluate import Environment
from ..nodes import Node, conjunction
from ..proof.closed_forms import Section
from .classes import Classes, classes_of
from .intervals import Rows
from .range_tree import RangeTree
from .ranges import Maxima
from .relations import Found, related
from .sets import MEMORY, At, PositionSet, at_places, over_positions, rows_at, set_of

_LOWEST: Final = -(2**62)
_POSITIONS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True)
class PreparedSection:
    """A section over all positions of a call.

    `low`, `high` and `holds` are `[batch, heads, positions of the other index]`; `found(at, other,
    low, high)` says whether some own position in low..high satisfies what is not a bound.
    """

    section: Section
    low: torch.Tensor
    high: torch.Tensor
    holds: torch.Tensor
    found: Found
    lengths: tuple[int, int]  # of the own and of the other index

    def tiles(self, places: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
        """Which tiles at `places` `[n, 4]` (batch, head, row, column) hold such a pair."""
        own_axis = 2 if self.section.own == "q_idx" else 3
        own_block, other_block = block if own_axis == 2 else block[::-1]
        offsets = torch.arange(other_block, device=places.device)
        parts = []
        for part in places.split(max(1, _POSITIONS_AT_ONCE // other_block)):
            at = (part[:, 0, None], part[:, 1, None])
            other = part[:, 5 - own_axis, None] * other_block + offsets
            # A tile cut by the length repeats its last position, which changes nothing.
            other = other.clamp(max=self.lengths[1] - 1)
            first = part[:, own_axis, None] * own_block
            last = (first + own_block - 1).clamp(max=self.lengths[0] - 1)
            low = torch.maximum(rows_at(self.low, at, other), first)
            high = torch.minimum(rows_at(self.high, at, other), last)
            some = rows_at(self.holds, at, other) & (low <= high)
            high = torch.where(some, high, low.clamp(0, self.lengths[0] - 1))
            low = torch.where(some, low, high)
            parts.append((some & self.found(at, other, low, high)).any(dim=-1))
        return torch.cat(parts)


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
        lambda: _prepare(section, lengths, own_block, env),
    )


def _prepare(
    section: Section, lengths: tuple[int, int], own_block: int, env: Environment
) -> PreparedSection | None:
    def over_other(node: Node) -> torch.Tensor:
        return over_positions(node, section.other, lengths[1], env)

    low = torch.zeros((1, 1, lengths[1]), dtype=torch.int64, device=env.device)
    high = torch.full_like(low, lengths[0] - 1)
    for bound in section.lows:
        low = torch.maximum(low, over_other(bound))
    for bound in section.highs:
        high = torch.minimum(high, over_other(bound))
    found: Found | None
    holds = over_other(conjunction(*section.others))
    members = over_positions(conjunction(*section.members), section.own, lengths[0], env)
    if section.equal and not section.order:
        found = _equal(section, lengths, members, env)
    elif section.order:
        found = _ordered(section, lengths, members, own_block, env)
    elif section.relation is not None:
        found = related(section, lengths, members, own_block, env)
    elif section.distances:
        found = _distant(section, lengths, env)
    else:
        found = _among(set_of(members))
    if found is None:
        return None
    return PreparedSection(section, low, high, holds, found, lengths)


def _among(members: PositionSet) -> Found:
    return lambda at, other, low, high: members.between(at, low, high) > 0


def _distant(section: Section, lengths: tuple[int, int], env: Environment) -> Found:
    """Some distance q - k of a set, for q (or k) in a range and one k (or q)."""
    by_query = section.own == "q_idx"
    q_len, kv_len = lengths if by_query else lengths[::-1]
    # A distance d is looked at as query d and key 0.
    places = {
        "kv_idx": torch.zeros((1, 1, 1), dtype=torch.int64, device=env.device),
        "q_idx": torch.arange(1 - kv_len, q_len, device=env.device).view(1, 1, -1),
    }
    kept = at_places(places, conjunction(*section.distances), env)
    members = set_of(kept.expand(*kept.shape[:2], q_len + kv_len - 1))
    zero = kv_len - 1

    def found(at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        if by_query:
            return members.between(at, low - other + zero, high - other + zero) > 0
        return members.between(at, other - high + zero, other - low + zero) > 0

    return found


def _ordered(
    section: Section,
    lengths: tuple[int, int],
    members: torch.Tensor,
    own_block: int,
    env: Environment,
) -> Found:
    """f(own) between two values of the other position for some member in a range.

    With one limit only, the maximum of f over the range decides.
    """
    base = section.order[0][0]
    own = over_positions(base, section.own, lengths[0], env)
    least = torch.full((1, 1, lengths[1]), _LOWEST, device=env.device)
    most = -least
    for f, g in section.order:
        limit = over_positions(g, section.other, lengths[1], env)
        if f == base:
            least = torch.maximum(least, -limit)
        else:
            most = torch.minimum(most, limit)
    apart = None
    for _, g, holds in section.equal:
        value = over_positions(g, section.other, lengths[1], env).to(torch.int64)
        if holds:
            least, most = torch.maximum(least, value), torch.minimum(most, value)
        else:
            apart = value
    if not section.equal and all(f == base for f, _ in section.order):
        entries = torch.where(members, own, _LOWEST)
        largest = Maxima.of(entries, own_block, torch.maximum)
        return lambda at, other, low, high: largest.over(at, low, high) >= rows_at(least, at, other)
    tree = RangeTree.of(own, members, own_block)

    def found(at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        limits = rows_at(least, at, other), rows_at(most, at, other)
        count = tree.between(at, (low, high), *limits)
        if apart is not None:
            value = rows_at(apart, at, other)
            same = torch.maximum(limits[0], value), torch.minimum(limits[1], value)
            count = count - tree.between(at, (low, high), *same)
        return count > 0

    return found


def _equal(
    section: Section, lengths: tuple[int, int], members: torch.Tensor, env: Environment
) -> Found:
    """Entries equal for all pairs that hold and different for all others, by counting.

    Those that are equal where they should not be are taken away by inclusion and exclusion.
    """
    own = [over_positions(f, section.own, lengths[0], env) for f, _, _ in section.equal]
    other = [over_positions(g, section.other, lengths[1], env) for _, g, _ in section.equal]
    wanted = [i for i, (_, _, holds) in enumerate(section.equal) if holds]
    unwanted = [i for i, (_, _, holds) in enumerate(section.equal) if not holds]
    counts: list[tuple[int, Classes]] = []
    for size in range(len(unwanted) + 1):
        for extra in combinations(unwanted, size):
            chosen = [*wanted, *extra]
            pairs = [(own[i], other[i]) for i in chosen]
            counts.append(((-1) ** size, classes_of(pairs, members, lengths)))

    def found(at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(low)
        for sign, classes in counts:
            total = total + sign * classes.between(at, other, low, high)
        return total > 0

    return found
