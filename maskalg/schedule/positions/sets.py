"""Sets of positions: where a formula of one index holds, counted and linked in one pass.

Built on the tensors' device without waiting for it, and remembered while the tensors live
unchanged, so that thirty layers share one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

import torch

from ...engine.evaluate import Environment, evaluate
from ...formula.nodes import Node
from ..memory import MEMORY, Memory

At = tuple[torch.Tensor, torch.Tensor]  # batch entry and head, broadcast against positions

_COMPARISONS: Final = Memory(16)


@dataclass(frozen=True)
class PositionSet:
    """Members among `length` positions, for each batch entry and head that is told apart.

    `counts`, int64 `[batch, heads, length + 1]`, are the members before a position. `members`,
    int64 `[batch, heads, length + 2]`, are the members by their number from 1 on, between -1 and
    as many `length` as follow.
    """

    counts: torch.Tensor
    members: torch.Tensor

    @property
    def length(self) -> int:
        return self.counts.shape[-1] - 1

    def first_from(self, at: At, x: torch.Tensor) -> torch.Tensor:
        """The first member >= x in the rows `at` (batch and head), `length` where there is none."""
        before = rows_at(self.counts, at, x.clamp(0, self.length))
        return rows_at(self.members, at, before + 1)

    def last_until(self, at: At, x: torch.Tensor) -> torch.Tensor:
        """The last member <= x, -1 where there is none."""
        return rows_at(self.members, at, rows_at(self.counts, at, (x + 1).clamp(0, self.length)))

    def between(self, at: At, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """How many members lie in low..high, both included and within the positions."""
        upto = rows_at(self.counts, at, (high + 1).clamp(0, self.length))
        return upto - rows_at(self.counts, at, low.clamp(0, self.length))


def rows_at(table: torch.Tensor, at: At, x: torch.Tensor) -> torch.Tensor:
    """Entries x of `[batch, heads, n]` tables, whose size 1 serves every batch entry or head."""
    batch = at[0] if table.shape[0] > 1 else torch.zeros_like(at[0])
    head = at[1] if table.shape[1] > 1 else torch.zeros_like(at[1])
    return table[batch, head, x]


def set_of(kept: torch.Tensor) -> PositionSet:
    """The set of the positions at which `kept` `[batch, heads, length]` is True."""
    length = kept.shape[-1]
    none = kept.new_zeros((*kept.shape[:-1], 1), dtype=torch.int64)
    counts = torch.cat([none, kept.cumsum(-1)], dim=-1)
    members = counts.new_full((*kept.shape[:-1], length + 2), length)
    members[..., 0] = -1
    # What is no member is written past all of them, where `length` stands afterwards.
    place = torch.arange(length, device=kept.device).expand(kept.shape)
    members.scatter_(-1, torch.where(kept, counts[..., 1:], length + 1), place)
    members[..., -1] = length
    return PositionSet(counts, members)


def over_positions(node: Node, index: str, length: int, env: Environment) -> torch.Tensor:
    """A formula of one index at positions 0..length - 1, `[batch, heads, length]`.

    Size 1 stands for all batch entries or heads where the formula does not tell them apart.
    """
    place = torch.arange(length, device=env.device)
    found = at_places({index: place.view(1, 1, -1)}, node, env)
    return found.expand(*found.shape[:2], length)


def at_places(places: dict[str, torch.Tensor], node: Node, env: Environment) -> torch.Tensor:
    """A formula at `places`, tensors `[1, 1, n]`, as `[batch, heads, n]` or with sizes 1."""
    rows = {
        "batch": env.indices["batch"].view(-1, 1, 1),
        "head": env.indices["head"].view(1, -1, 1),
    }
    at = {**rows, **places}
    found = evaluate(node, Environment(at, env.values, step=env.step))
    return found[(None,) * (3 - found.ndim)]


def position_set(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> PositionSet:
    """The positions of an index at which a formula of it holds, remembered.

    `lengths` are those of the queries and of the keys.
    """
    key = _key(node, index, lengths, env)
    return MEMORY.recall(
        ("set", *key), (node,), env.values, lambda: set_of(_holds(node, index, lengths, env))
    )


def ends(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> At:
    """The first and the last position of `position_set`, int64 `[batch, heads, 1]`, remembered.

    Without a position they are the length and -1. Found without counting the positions.
    """
    key = _key(node, index, lengths, env)
    return MEMORY.recall(
        ("ends", *key), (node,), env.values, lambda: _ends(_holds(node, index, lengths, env))
    )


def _ends(kept: torch.Tensor) -> At:
    length = kept.shape[-1]
    # One more position at either end, where all hold.
    marks = torch.nn.functional.pad(kept.to(torch.uint8), (1, 1), value=1)
    first = marks[..., 1:].argmax(-1, keepdim=True)
    last = length - 1 - marks[..., :-1].flip(-1).argmax(-1, keepdim=True)
    return first, last


def _holds(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> torch.Tensor:
    """True where a formula of one index holds; sets of one proof share their comparisons."""
    if node.op == "not":
        return ~_holds(node.args[0], index, lengths, env)
    if node.op in ("and", "or"):
        join = torch.logical_and if node.op == "and" else torch.logical_or
        return reduce(join, [_holds(arg, index, lengths, env) for arg in node.args])
    length = lengths[0 if index == "q_idx" else 1]
    return _COMPARISONS.recall(
        _key(node, index, lengths, env),
        (node,),
        env.values,
        lambda: over_positions(node, index, length, env),
    )


def _key(node: Node, index: str, lengths: tuple[int, int], env: Environment) -> tuple[object, ...]:
    """All that the positions depend on beside the formula and its values."""
    # What follows the members of a set of queries follows the number of queries, too.
    follows = index == "q_idx" or any(part.op == "member" for part in node.walk())
    sizes = (env.indices["batch"].numel(), env.indices["head"].numel())
    of_keys = None if index == "q_idx" else lengths[1]
    return index, lengths[0] if follows else None, of_keys, sizes, env.device
