"""Tables of pairs of categories: does a range hold a category that another one allows?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

import numpy as np
import torch
from torch.nn.functional import pad

from ...engine.evaluate import Environment, evaluate
from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ...formula.separation import positions, terms_of
from ...proof.closed_forms import Relation, Section
from .rests import Maxima, Rest, Sides, TilePairs, Verdict, by_tile, union
from .sets import At, PositionSet, over_positions, rows_at

_CATEGORIES_OF_A_WORD: Final = 62
_MOST_ENTRIES: Final = 1 << 24
_MOST_OF_RANGES: Final = 1 << 26  # counts of them fit 32 bits

Range = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Categories(Rest):
    """The condition that the category of the other position allows that of the own one.

    `own` `[batch, heads, own]` and `other` `[batch, heads, other]` are the categories; `allowed`
    is bool `[batch, heads, own categories, other categories]`. Only own positions in `members`
    count.
    """

    own: torch.Tensor
    other: torch.Tensor
    allowed: torch.Tensor
    members: torch.Tensor
    own_block: int

    @cached_property
    def _groups(self) -> list[tuple[torch.Tensor, Maxima]]:
        """For each 62 categories, as bits: those that other categories allow, those of own
        positions."""
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
            members = PositionSet(self.members & (self.own == category))
            wanted = rows_at(flat, at, category * columns + column)
            total = total + torch.where(wanted, members.between(at, low, high), 0)
        return total

    def between(self, pairs: TilePairs) -> Verdict:
        met = torch.zeros_like(pairs.own, dtype=torch.bool)
        for wanted, held in pairs.of.once("words", lambda: self._words(pairs.of)):
            shared = rows_at(wanted, pairs.at, pairs.other) & rows_at(held, pairs.at, pairs.own)
            met = met | (shared != 0)
        return Verdict.of(met)

    def _words(self, of: Sides) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each 62 categories, as bits: those each other tile allows, and each own tile's."""
        zero = torch.zeros((), dtype=torch.int64, device=self.own.device)
        found = []
        for words, present in self._groups:
            at = (
                torch.arange(words.shape[0], device=zero.device).view(-1, 1, 1),
                torch.arange(words.shape[1], device=zero.device).view(1, -1, 1),
            )
            wanted = torch.where(of.holds, rows_at(words, at, self.other), zero)
            wanted = union(by_tile(wanted, of.sides[1], 0))
            found.append((wanted, union(by_tile(present.table[0], of.sides[0], 0))))
        return found


@dataclass(frozen=True)
class CategoryRanges(Rest):
    """Categories such as q // 64: a range of own positions skips none between its ends.

    `own`, `other` and `allowed` are as in `Categories`; with `both`, a range of other positions has
    every category between its first and last, too.
    """

    own: torch.Tensor
    other: torch.Tensor
    allowed: torch.Tensor
    members: PositionSet
    both: bool

    @cached_property
    def _before(self) -> torch.Tensor:
        """How many members come before the first position of each category (or of a later one)."""
        rows = torch.arange(self.allowed.shape[2] + 1, device=self.own.device)
        rows = rows.expand(*self.own.shape[:2], -1).contiguous()
        first = torch.searchsorted(self.own.contiguous(), rows)
        shape = np.broadcast_shapes(first.shape[:2], self.members.counts.shape[:2])
        counts = self.members.counts.expand(*shape, -1)
        return counts.gather(-1, first.expand(*shape, -1))

    @cached_property
    def _counts(self) -> torch.Tensor:
        """Members with an allowed category before each row, `[…, columns, rows + 1]`.

        Sums along the last dimension are several times as fast as down the table.
        """
        sizes = self._before.diff(dim=-1)[:, :, None].to(torch.int32)
        return pad((self.allowed.mT * sizes).cumsum(dim=3, dtype=torch.int32), (1, 0))

    def count(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        total = torch.zeros_like(low)
        for sign, end in ((1, high + 1), (-1, low)):
            # Allowed members before `end`, whose category is `row`.
            row = rows_at(self.own, at, end.clamp(max=self.own.shape[-1] - 1))
            inside = rows_at(self.members.counts, at, end) - rows_at(self._before, at, row)
            inside = entry_at(self.allowed, at, row, column) * inside
            total = total + sign * (entry_at(self._counts, at, column, row) + inside)
        return total

    def some(
        self, at: At, other: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> torch.Tensor:
        column = rows_at(self.other, at, other)
        first, last = rows_at(self.own, at, low), rows_at(self.own, at, high)
        begin, upto = (rows_at(self.members.counts, at, end) for end in (low, high + 1))
        # The range may hold a part of the first and of the last category, and all between them.
        of_first = torch.minimum(upto, rows_at(self._before, at, first + 1)) > begin
        of_last = upto > torch.maximum(begin, rows_at(self._before, at, last))
        between = (torch.minimum(first + 1, last), last)
        inside = sum_within(self._pairs_before, at, (column, column + 1), between)
        return (
            (inside > 0)
            | (of_first & entry_at(self.allowed, at, first, column))
            | (of_last & entry_at(self.allowed, at, last, column))
        )

    def between(self, pairs: TilePairs) -> Verdict:
        if not self.both:
            unknown = torch.zeros_like(pairs.own, dtype=torch.bool)
            return Verdict.of(unknown, unknown)
        first, last = pairs.own_ends
        top, bottom = (rows_at(self.own, pairs.at, end) for end in (first, last))
        left, right = (rows_at(self.other, pairs.at, end) for end in pairs.other_ends)
        ranges = (left, right + 1), (top, bottom + 1)
        count = sum_within(self._pairs_before, pairs.at, *ranges)
        met = count > 0
        members = self.members.between(pairs.at, first, last)
        every = members == last - first + 1
        # One member of a category is as good as all of them.
        own = every | ((top == bottom) & (members > 0))
        other = pairs.all_hold() | ((left == right) & pairs.some_hold())
        all_allowed = count == (bottom - top + 1) * (right - left + 1)
        return Verdict(met, (own & other) | ~met, every & all_allowed)

    @cached_property
    def _pairs_before(self) -> torch.Tensor:
        """How many allowed pairs come before each column and row, of categories that have a member,
        int32 `[…, columns + 1, rows + 1]`."""
        held = self._before.diff(dim=-1)[:, :, None] > 0
        table = pad((self.allowed.mT & held).cumsum(dim=3, dtype=torch.int32), (1, 0, 1, 0))
        # On a CPU, six times as fast as sums along the columns.
        for column in range(1, table.shape[2]):
            table[:, :, column] += table[:, :, column - 1]
        return table


def related(
    section: Section,
    lengths: tuple[int, int],
    members: torch.Tensor,
    own_block: int,
    env: Environment,
) -> Rest | None:
    """The test for a section's relation; None if its table is too large to count."""
    relation = section.relation
    assert relation is not None
    other_index = "kv_idx" if relation.own_index == "q_idx" else "q_idx"
    sizes = (
        categories(relation.node, relation.own_index, env),
        categories(relation.node, other_index, env),
    )
    ranges = sizes[0] > _CATEGORIES_OF_A_WORD and _takes_every_value(relation.f)
    if sizes[0] * sizes[1] > (_MOST_OF_RANGES if ranges else _MOST_ENTRIES) or 0 in sizes:
        return None
    own = over_positions(relation.f, section.own, lengths[0], env).clamp(0, sizes[0] - 1)
    other = over_positions(relation.g, section.other, lengths[1], env).clamp(0, sizes[1] - 1)
    allowed = table_of(relation, other_index, sizes, env)
    if ranges:
        both = _takes_every_value(relation.g)
        return CategoryRanges(own, other, allowed, PositionSet(members), both)
    return Categories(own, other, allowed, members, own_block)


def entry_at(table: torch.Tensor, at: At, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Entries of `[batch, heads, rows, columns]`; size 1 serves every batch entry or head."""
    return rows_at(table.flatten(2), at, row * table.shape[3] + column)


def sum_within(before: torch.Tensor, at: At, rows: Range, columns: Range) -> torch.Tensor:
    """The sum of a table over ranges of rows and of columns, whose ends are excluded.

    `before[…, r, c]` is its sum over all rows before r and all columns before c.
    """
    (top, bottom), (left, right) = rows, columns
    until = entry_at(before, at, bottom, right) - entry_at(before, at, bottom, left)
    return until - entry_at(before, at, top, right) + entry_at(before, at, top, left)


def table_of(
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


def categories(node: Node, index: str, env: Environment) -> int:
    """The largest size of an axis that a table is read along by an index."""
    sizes = [0]
    for read in node.walk():
        for axis, arg in enumerate(read.args):
            if read.op == "read" and arg.op == "index" and arg.data == index:
                table = cast(torch.Tensor, env.values[cast(Slot, read.own[0]).index])
                sizes.append(table.shape[axis])
    return max(sizes)


def _takes_every_value(f: Node) -> bool:
    """Whether f is an index plus an offset, or its quotient: then it skips no value."""
    if f.op == "floordiv":
        f = f.args[0]
    terms = terms_of(f)
    places = [term for term in terms if term in (nodes.Q, nodes.K)]
    rest = [term for term in terms if term not in places]
    return len(places) == 1 and not any(positions(term) for term in rest)
