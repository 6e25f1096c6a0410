"""Tables of pairs of categories: has a position of a range a category that another one allows?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

import torch
from torch.nn.functional import pad

from .. import nodes
from ..evaluate import Environment, evaluate
from ..nodes import Node
from ..parameters import Slot
from ..proof.closed_forms import Relation, Section
from .ranges import Maxima, union
from .sets import At, over_positions, rows_at, set_of
from .tile_pairs import Rest, TilePairs, by_tile

_CATEGORIES_OF_A_WORD: Final = 62
_MOST_ENTRIES: Final = 1 << 24


@dataclass(frozen=True)
class Categories:
    """The category of an own position is one that the category of the other one allows.

    `own` `[batch, heads, own]` and `other` `[batch, heads, other]` are the categories; `allowed`
    is bool `[batch, heads, own categories, other categories]`. `members` are the own positions that
    count.
    """

    own: torch.Tensor
    other: torch.Tensor
    allowed: torch.Tensor
    members: torch.Tensor
    own_block: int

    @cached_property
    def _groups(self) -> list[tuple[torch.Tensor, Maxima]]:
        """For each 62 categories, what other categories allow and positions have, as bits."""
        groups = []
        for start in range(0, self.allowed.shape[2], _CATEGORIES_OF_A_WORD):
            part = self.allowed[:, :, start : start + _CATEGORIES_OF_A_WORD]
            bits = 1 << torch.arange(part.shape[2], device=self.own.device)
            here = self.members & (self.own >= start) & (self.own < start + part.shape[2])
            entries = torch.where(here, 1 << (self.own - start).clamp(0, part.shape[2] - 1), 0)
            present = Maxima.of(entries, self.own_block, torch.bitwise_or)
            groups.append(((part * bits[:, None]).sum(dim=2), present))
        return groups

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        some = torch.zeros_like(low, dtype=torch.bool)
        for words, present in self._groups:
            some = some | ((present.over(at, low, high) & rows_at(words, at, column)) != 0)
        return some

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        columns = self.allowed.shape[3]
        flat = self.allowed.flatten(2)
        total = torch.zeros_like(low)
        for category in range(self.allowed.shape[2]):
            members = set_of(self.members & (self.own == category))
            wanted = rows_at(flat, at, category * columns + column)
            total = total + torch.where(wanted, members.between(at, low, high), 0)
        return total

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        met = torch.zeros_like(pairs.own, dtype=torch.bool)
        zero = torch.zeros((), dtype=torch.int64, device=met.device)
        for words, present in self._groups:
            at = (
                torch.arange(words.shape[0], device=met.device).view(-1, 1, 1),
                torch.arange(words.shape[1], device=met.device).view(1, -1, 1),
            )
            wanted = torch.where(pairs.holds, rows_at(words, at, self.other), zero)
            wanted = union(by_tile(wanted, pairs.sides[1], 0))
            held = union(by_tile(present.table[..., 0], pairs.sides[0], 0))
            met |= (
                rows_at(wanted, pairs.at, pairs.other) & rows_at(held, pairs.at, pairs.own)
            ) != 0
        return met, torch.ones_like(met)


@dataclass(frozen=True)
class CategoryRanges:
    """Categories of which a range of own positions has every one between its first and last.

    `own`, `other` and `allowed` are those of `Categories`; with `both` a range of other positions
    also has every category between those of its ends.
    """

    own: torch.Tensor
    other: torch.Tensor
    allowed: torch.Tensor
    both: bool

    @cached_property
    def _counts(self) -> torch.Tensor:
        """Categories allowed before each row of the table, `[batch, heads, rows + 1, columns]`."""
        return pad(self.allowed.cumsum(dim=2, dtype=torch.int32), (0, 0, 1, 0))

    @cached_property
    def _positions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Own positions allowed before each row of the table, and how many are before each row."""
        rows = torch.arange(self.allowed.shape[2] + 1, device=self.own.device)
        before = torch.searchsorted(
            self.own.contiguous(), rows.expand(*self.own.shape[:2], -1).contiguous()
        )
        weighted = self.allowed * before.diff(dim=-1)[..., None].to(torch.int32)
        return pad(weighted.cumsum(dim=2, dtype=torch.int32), (0, 0, 1, 0)), before

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        first, last = rows_at(self.own, at, low), rows_at(self.own, at, high)
        upto = _entry(self._counts, at, last + 1, column)
        return upto > _entry(self._counts, at, first, column)

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        counts, before = self._positions
        total = torch.zeros_like(low)
        for sign, end in ((1, high + 1), (-1, low)):
            # Own positions allowed before `end`, which stands in row `row` of the table.
            row = rows_at(self.own, at, end.clamp(max=self.own.shape[-1] - 1))
            inside = torch.where(
                _entry(self.allowed, at, row, column), end - rows_at(before, at, row), 0
            )
            total = total + sign * (_entry(counts, at, row, column) + inside)
        return total

    def between(self, pairs: TilePairs) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.both:
            unknown = torch.zeros_like(pairs.own, dtype=torch.bool)
            return unknown, unknown
        counts = pad(self._counts.cumsum(dim=3, dtype=torch.int32), (1, 0))
        first, last = (rows_at(self.own, pairs.at, end) for end in pairs.own_ends)
        left, right = (rows_at(self.other, pairs.at, end) for end in pairs.other_ends)
        upto = [_entry(counts, pairs.at, last + 1, column) for column in (right + 1, left)]
        before = [_entry(counts, pairs.at, first, column) for column in (right + 1, left)]
        met = upto[0] - upto[1] - before[0] + before[1] > 0
        return met, pairs.all_hold() | ~met


def related(
    section: Section,
    lengths: tuple[int, int],
    members: torch.Tensor,
    own_block: int,
    env: Environment,
) -> Rest | None:
    """The test of a section with a relation; None where its table is too large to be counted."""
    relation = section.relation
    assert relation is not None
    other_index = "kv_idx" if relation.own_index == "q_idx" else "q_idx"
    sizes = (
        _categories(relation.node, relation.own_index, env),
        _categories(relation.node, other_index, env),
    )
    if sizes[0] * sizes[1] > _MOST_ENTRIES or 0 in sizes:
        return None
    own = over_positions(relation.f, section.own, lengths[0], env).clamp(0, sizes[0] - 1)
    other = over_positions(relation.g, section.other, lengths[1], env).clamp(0, sizes[1] - 1)
    allowed = _table(relation, other_index, sizes, env)
    few = sizes[0] <= _CATEGORIES_OF_A_WORD
    if not few and _takes_every_value(relation.f) and not section.members:
        return CategoryRanges(own, other, allowed, _takes_every_value(relation.g))
    return Categories(own, other, allowed, members, own_block)


def _entry(table: torch.Tensor, at: At, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Entries of `[batch, heads, rows, columns]`; size 1 serves every batch entry or head."""
    return rows_at(table.flatten(2), at, row * table.shape[3] + column)


def _table(
    relation: Relation, other_index: str, sizes: tuple[int, int], env: Environment
) -> torch.Tensor:
    """Which pairs of categories are related, bool `[batch, heads, own, other]`."""
    at = {
        "batch": env.indices["batch"].view(-1, 1, 1, 1),
        "head": env.indices["head"].view(1, -1, 1, 1),
        relation.own_index: torch.arange(sizes[0], device=env.device).view(-1, 1),
        other_index: torch.arange(sizes[1], device=env.device),
    }
    found = evaluate(relation.node, Environment(at, env.values, step=env.step))
    return found[(None,) * (4 - found.ndim)].expand(-1, -1, *sizes)


def _categories(node: Node, index: str, env: Environment) -> int:
    """How many entries the tables have along the axes that are read at an index."""
    sizes = [0]
    for read in node.walk():
        for axis, arg in enumerate(read.args):
            if read.op == "read" and arg.op == "index" and arg.data == index:
                table = cast(torch.Tensor, env.values[cast(Slot, read.own[0]).index])
                sizes.append(table.shape[axis])
    return max(sizes)


def _takes_every_value(f: Node) -> bool:
    """Whether f is an index over a number, so that it misses no value between two of its own."""
    if f.op == "floordiv":
        f = f.args[0]
    terms = f.args if f.op == "add" else (f,)
    places = [term for term in terms if term in (nodes.Q, nodes.K)]
    rest = [term for term in terms if term not in places]
    return len(places) == 1 and not any(
        index in ("q_idx", "kv_idx") for term in rest for index in term.indices()
    )
