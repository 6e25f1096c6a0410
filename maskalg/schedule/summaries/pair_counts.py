"""How many entries of a table hold within ranges of its indices, by sums up to their ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch.nn.functional import pad

from ...engine.evaluate import Environment
from ...formula import nodes
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ...proof.closed_forms import Relation
from ...proof.separation import positions
from ..memory import MEMORY
from ..positions.relations import categories, table_of
from ..positions.sets import At, over_positions, rows_at

_MOST_PAIRS: Final = 1 << 26  # of categories; sums of them fit 32 bits

Range = tuple[torch.Tensor, torch.Tensor]  # of indices, both ends included


@dataclass(frozen=True)
class PairCounts:
    """`before[…, r, c]`: how many pairs are allowed before row r and column c, int32
    `[batch, heads, rows + 1, columns + 1]`, 1 where they are all alike."""

    before: torch.Tensor

    def within(self, at: At, rows: Range, columns: Range) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether every pair of categories in these ranges is allowed, and whether some is.

        Categories past the tables are those of their last entries.
        """
        low, past = self._ends(rows, axis=2)
        left, right = self._ends(columns, axis=3)
        size = (past - low) * (right - left)
        row, column = torch.stack((past, low))[:, None], torch.stack((right, left))[None]
        sizes = self.before.shape[:2]
        batch, head = (index if size > 1 else 0 for index, size in zip(at, sizes, strict=True))
        upto = self.before[batch, head, row, column]
        until = upto[0] - upto[1]
        count = until[0] - until[1]
        return count == size, count > 0

    def _ends(self, ends: Range, axis: int) -> Range:
        most = self.before.shape[axis] - 2
        return ends[0].clamp(0, most), ends[1].clamp(0, most) + 1


def pair_counts(relation: tuple[Node, Node, Node], env: Environment) -> PairCounts | None:
    """The counts of a relation of categories (see `related`), remembered; None without
    entries, or with too many."""
    node, f, g = relation
    sizes = categories(node, "q_idx", env), categories(node, "kv_idx", env)
    if not 0 < math.prod((*sizes, *_members(env))) <= _MOST_PAIRS:
        return None

    def counted() -> PairCounts:
        allowed = table_of(Relation(node, "q_idx", f, g), "kv_idx", sizes, env)
        counts = allowed.cumsum(dim=-1, dtype=torch.int32).cumsum(dim=-2, dtype=torch.int32)
        return PairCounts(pad(counts, (1, 0, 1, 0)))

    key = ("pair counts", sizes, _members(env), env.device)
    return MEMORY.recall(key, (node,), env.values, counted)


def entries_within(node: Node, ends: Range, at: At, env: Environment) -> Range | None:
    """Whether every entry is True that a Boolean reading may see, and whether some is.

    None for a reading of which more than one index, or none, depends on both positions.

    Args:
        node: the reading, such as `slash[head, q_idx - kv_idx]`.
        ends: of the index that depends on both positions.
        at: batch entry and head of each tile.
        env: indices and values.
    """
    axes = [axis for axis, arg in enumerate(node.args) if positions(arg)]
    table = cast(torch.Tensor, env.values[cast(Slot, node.own[0]).index])
    if len(axes) != 1 or table.shape[axes[0]] == 0:
        return None
    size = table.shape[axes[0]]
    args = [nodes.Q if axis == axes[0] else arg for axis, arg in enumerate(node.args)]
    row = Node("read", node.kind, tuple(args), own=node.own)

    def counted() -> torch.Tensor:
        return pad(over_positions(row, "q_idx", size, env).cumsum(dim=-1), (1, 0))

    key = ("entries", size, _members(env), env.device)
    before = MEMORY.recall(key, (row,), env.values, counted)
    # An index past the table reads its last entry.
    low, past = ends[0].clamp(0, size - 1), ends[1].clamp(0, size - 1) + 1
    count = rows_at(before, at, past) - rows_at(before, at, low)
    return count == past - low, count > 0


def _members(env: Environment) -> tuple[int, int]:
    return env.indices["batch"].numel(), env.indices["head"].numel()
