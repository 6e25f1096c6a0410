"""Sets of positions at which a formula of one index holds, counted and linked in one pass.

Built on the tensors' device without waiting for it, and remembered while the tensors live
unchanged, so that thirty layers share one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from ...engine.evaluate import Environment, evaluate
from ...engine.memory import MEMORY, Memory
from ...formula.entries import readable
from ...formula.nodes import Node

_Places = NDArray[np.int64]
At = tuple[torch.Tensor, torch.Tensor]  # batch entry and head, broadcast against positions

_COMPARISONS: Final = Memory(16)
_SEARCHES: Final = 32  # positions of a table made in the time of a search
_STRIP: Final = 1 << 16  # positions that a CPU evaluates together


@dataclass(frozen=True, eq=False)
class PositionSet:
    """The members of a set among `length` positions, Boolean `[batch, heads, length]`.

    A few positions are searched for among the ends of runs of members. Tables of all positions are
    made for many, and on a GPU, where the host does not wait for the number of runs.
    """

    kept: torch.Tensor

    @property
    def length(self) -> int:
        return self.kept.shape[-1]

    @cached_property
    def counts(self) -> torch.Tensor:
        """The number of members before each position, int64 `[batch, heads, length + 1]`."""
        none = self.kept.new_zeros((*self.kept.shape[:-1], 1), dtype=torch.int64)
        return torch.cat([none, self.kept.cumsum(-1)], dim=-1)

    @cached_property
    def members(self) -> torch.Tensor:
        """The members, numbered from 1 on, int64 `[batch, heads, length + 2]`.

        -1 comes before them; `length` fills the places after them.
        """
        kept, length = self.kept, self.length
        members = self.counts.new_full((*kept.shape[:-1], length + 2), length)
        members[..., 0] = -1
        # Other positions are written past all of them, and overwritten by `length`.
        place = torch.arange(length, device=kept.device).expand(kept.shape)
        members.scatter_(-1, torch.where(kept, self.counts[..., 1:], length + 1), place)
        members[..., -1] = length
        return members

    @cached_property
    def _edges(self) -> NDArray[np.int64]:
        """The places where runs of members begin and end, in turn, within the first and last place.

        Places are those of all rows, each row `length` after the one before. A run may end in
        another row than it begins.
        """
        # NumPy takes a tenth of PyTorch's time for a million positions.
        kept = self.kept.flatten().numpy()
        begins = np.flatnonzero(kept[:1])
        edges = np.concatenate(
            [[0], begins, np.flatnonzero(kept[1:] != kept[:-1]) + 1, [len(kept)]]
        )
        return edges if len(edges) % 2 == 0 else np.append(edges, len(kept))

    def few(self, at: At, x: torch.Tensor) -> bool:
        """Whether there are so few positions that they are searched for."""
        if "counts" in self.__dict__ or not readable(self.kept):
            return False
        return max(x.numel(), at[0].numel(), at[1].numel()) * _SEARCHES < self.kept.numel()

    def _searched(self, at: At, x: torch.Tensor) -> tuple[_Places, _Places, torch.Tensor]:
        """The place of each x, the number of the last edge up to it, and where its row begins.

        If the number of the edge is odd, x is a member.
        """
        row = rows_at(self._rows, at, torch.zeros_like(at[0]))
        place = (row + x).numpy()
        # NumPy searches on from the place found before: rows of tiles ascend.
        edge = np.asarray(np.searchsorted(self._edges[1:-1], place, side="right"))
        return place, edge, row

    @cached_property
    def _rows(self) -> torch.Tensor:
        """Where the numbers of each row begin in `_listed`, `[batch, heads, 1]`."""
        shape = (*self.kept.shape[:2], 1)
        return torch.arange(math.prod(shape), device=self.kept.device).view(shape) * self.length

    def first_from(self, at: At, x: torch.Tensor) -> torch.Tensor:
        """The first member >= x in the rows `at` (batch and head); `length` if there is none."""
        if self.few(at, x):
            place, edge, row = self._searched(at, x.clamp(0, self.length))
            found = np.where(edge & 1, place, self._edges[edge + 1])
            return (torch.from_numpy(found) - row).clamp(max=self.length)
        before = rows_at(self.counts, at, x.clamp(0, self.length))
        return rows_at(self.members, at, before + 1)

    def last_until(self, at: At, x: torch.Tensor) -> torch.Tensor:
        """The last member <= x; -1 if there is none."""
        if self.few(at, x):
            place, edge, row = self._searched(at, x.clamp(-1, self.length - 1))
            found = np.where(edge & 1, place, self._edges[edge] - 1)
            return (torch.from_numpy(found) - row).clamp(min=-1)
        return rows_at(self.members, at, rows_at(self.counts, at, (x + 1).clamp(0, self.length)))

    def _before(self, at: At, x: torch.Tensor) -> torch.Tensor:
        """The number of members before x, in its row and all rows before."""
        place, edge, _ = self._searched(at, x.clamp(0, self.length))
        return torch.from_numpy(
            self._sums[edge >> 1] + np.where(edge & 1, place - self._edges[edge], 0)
        )

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """The number of members in the runs before each run."""
        lengths = self._edges[2::2] - self._edges[1:-1:2]
        return np.concatenate([[0], lengths.cumsum()])

    def between(self, at: At, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """How many members lie in low..high, both included and within the positions."""
        if self.few(at, low) and self.few(at, high):
            return self._before(at, high + 1) - self._before(at, low)
        upto = rows_at(self.counts, at, (high + 1).clamp(0, self.length))
        return upto - rows_at(self.counts, at, low.clamp(0, self.length))


def rows_at(table: torch.Tensor, at: At, x: torch.Tensor) -> torch.Tensor:
    """Entries x of `[batch, heads, n]` tables, whose size 1 serves every batch entry or head."""
    if table.shape[0] == table.shape[1] == 1:  # one index is looked up in less time than three
        return table[0, 0][x].expand(np.broadcast_shapes(at[0].shape, at[1].shape, x.shape))
    batch = at[0] if table.shape[0] > 1 else torch.zeros_like(at[0])
    head = at[1] if table.shape[1] > 1 else torch.zeros_like(at[1])
    return table[batch, head, x]


def spread(first: torch.Tensor, end: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of the ranges `first <= number < end`, and before them the range of each."""
    count = end - first
    owner = torch.repeat_interleave(count)
    turn = torch.arange(len(owner), device=owner.device)
    return owner, (first - count.cumsum(0) + count).index_select(0, owner) + turn


def over_positions(node: Node, index: str, length: int, env: Environment) -> torch.Tensor:
    """A formula of one index at positions 0..length - 1, `[batch, heads, length]`.

    Sizes are 1 if the formula does not depend on the batch entry or head.
    """
    whole = torch.empty(0)
    for first, found in strips(node, index, length, env):
        if found.shape[-1] == length:
            return found.detach()  # a view would keep its table alive
        if not first:
            whole = found.new_empty((*found.shape[:2], length))
        whole[..., first : first + found.shape[-1]] = found
    return whole


def strips(
    node: Node, index: str, length: int, env: Environment, side: int = 1
) -> Iterator[tuple[int, torch.Tensor]]:
    """A formula of one index on strips of positions: starts, and values `[batch, heads, strip]`.

    On a CPU, the memory of a strip is used again for the next; memory for a million positions would
    come from the system page by page. On a GPU all positions are one strip. All strips but the last
    have a multiple of `side` positions.
    """
    size = max(length, 1)
    if readable(next(iter(env.indices.values()))):
        size = -(-_STRIP // side) * side
    for first in range(0, max(length, 1), size):
        here = min(size, length - first)
        found = at_places({}, node, env, (index, first, here))
        yield first, found.expand(*found.shape[:2], here)


def at_places(
    places: dict[str, torch.Tensor],
    node: Node,
    env: Environment,
    counting: tuple[str, int, int] | None = None,
) -> torch.Tensor:
    """A formula at `places`, tensors `[1, 1, n]`, as `[batch, heads, n]` or with sizes 1.

    `counting` is as in `Environment`.
    """
    rows = {
        "batch": env.indices["batch"].view(-1, 1, 1),
        "head": env.indices["head"].view(1, -1, 1),
    }
    at = {**rows, **places}
    found = evaluate(node, Environment(at, env.values, step=env.step, counting=counting))
    return found[(None,) * (3 - found.ndim)]


def position_set(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> PositionSet:
    """The positions of an index at which a formula of it holds, remembered.

    `lengths` are those of the queries and of the keys.
    """
    key = _key(node, index, lengths, env)
    return MEMORY.recall(
        ("set", *key), (node,), env.values, lambda: PositionSet(holds(node, index, lengths, env))
    )


def ends(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> At:
    """The first and the last position of `position_set`, int64 `[batch, heads, 1]`, remembered.

    Without a position they are the length and -1. Found without counting the positions.
    """
    key = _key(node, index, lengths, env)
    return MEMORY.recall(
        ("ends", *key), (node,), env.values, lambda: _ends(holds(node, index, lengths, env))
    )


def _ends(kept: torch.Tensor) -> At:
    length = kept.shape[-1]
    # One more position at either end, where all hold.
    marks = torch.nn.functional.pad(kept.to(torch.uint8), (1, 1), value=1)
    first = marks[..., 1:].argmax(-1, keepdim=True)
    last = length - 1 - marks[..., :-1].flip(-1).argmax(-1, keepdim=True)
    return first, last


def holds(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> torch.Tensor:
    """True where a formula of one index holds; sets of one proof share their comparisons."""
    if node.op == "not":
        return ~holds(node.args[0], index, lengths, env)
    if node.op in ("and", "or"):
        join = torch.logical_and if node.op == "and" else torch.logical_or
        return reduce(join, [holds(arg, index, lengths, env) for arg in node.args])
    length = lengths[0 if index == "q_idx" else 1]
    return _COMPARISONS.recall(
        _key(node, index, lengths, env),
        (node,),
        env.values,
        lambda: over_positions(node, index, length, env),
    )


def _key(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> tuple[object, ...]:
    """All inputs of the positions other than the formula and its values."""
    # Reads of the next member of a set of queries depend on the number of queries, too.
    follows = index == "q_idx" or "member" in node.ops()
    sizes = (env.indices["batch"].numel(), env.indices["head"].numel())
    of_keys = None if index == "q_idx" else lengths[1]
    return index, lengths[0] if follows else None, of_keys, sizes, env.device
