"""Summaries of tensors over pairs: blocks that hold a kept pair, and counts of entries in ranges.

A tensor is read once for each block size and remembered while it lives unchanged, whatever formulas
use it. Entries within ranges of the indices are counted by sums up to the ends of the ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch.nn.functional import pad

from ...engine.evaluate import Environment, evaluate
from ...formula import nodes
from ...formula.nodes import BATCH, HEAD, K, Node, Q
from ...formula.parameters import Slot
from ...formula.separation import positions
from ...proof.closed_forms import Relation
from ..memory import MEMORY
from ..positions.relations import categories, table_of
from ..positions.sets import At, over_positions, rows_at

_ELEMENTS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True)
class Blocks:
    """A Boolean for every block, `[batch, heads, rows, columns]`; sizes are 1 if all are alike."""

    marks: torch.Tensor

    def at(self, at: At, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        batch, head = (
            index if size > 1 else torch.zeros_like(index)
            for index, size in zip(at, self.marks.shape[:2], strict=True)
        )
        return self.marks[batch, head, row, column]


@dataclass(frozen=True)
class PairBlocks:
    """The blocks in which some pair holds, and those in which every pair does."""

    some: Blocks
    every: Blocks


def pair_blocks(
    node: Node, lengths: tuple[int, int], block: tuple[int, int], env: Environment
) -> PairBlocks:
    """The summary of a Boolean formula of query and key over all blocks of a call."""
    sizes = (env.indices["batch"].numel(), env.indices["head"].numel())
    return MEMORY.recall(
        ("pairs", lengths, block, sizes, env.device),
        (node,),
        env.values,
        lambda: _summarised(node, lengths, block, env),
    )


def _summarised(
    node: Node, lengths: tuple[int, int], block: tuple[int, int], env: Environment
) -> PairBlocks:
    indices = {
        "batch": env.indices["batch"].view(-1, 1, 1, 1),
        "head": env.indices["head"].view(1, -1, 1, 1),
        "kv_idx": torch.arange(lengths[1], device=env.device),
    }
    entries = _entries(node, lengths, env)
    row = lengths[1] * indices["batch"].numel() * indices["head"].numel()
    strip = max(1, _ELEMENTS_AT_ONCE // (row * block[0])) * block[0]
    some, every = [], []
    for first in range(0, lengths[0], strip):
        q_idx = torch.arange(first, min(first + strip, lengths[0]), device=env.device)
        if entries is None:
            at = {**indices, "q_idx": q_idx.view(-1, 1)}
            kept = evaluate(node, Environment(at, env.values))
        else:
            kept = entries[..., first : first + strip, :]
        kept = kept[(None,) * (4 - kept.ndim)]
        kept = kept.expand(*kept.shape[:2], len(q_idx), lengths[1])
        some.append(_over_blocks(kept, block, fill=False).any(dim=-1).any(dim=-2))
        every.append(_over_blocks(kept, block, fill=True).all(dim=-1).all(dim=-2))
    return PairBlocks(Blocks(torch.cat(some, dim=2)), Blocks(torch.cat(every, dim=2)))


def _entries(node: Node, lengths: tuple[int, int], env: Environment) -> torch.Tensor | None:
    """The tensor itself, `[…, q_len, kv_len]`, if it is read at the plain indices."""
    if node.op != "read" or node.args != (BATCH, HEAD, Q, K)[4 - len(node.args) :]:
        return None
    table = cast(torch.Tensor, env.values[cast(Slot, node.own[0]).index])
    sizes = table.shape[-2:]
    if len(sizes) < 2 or sizes[0] < lengths[0] or sizes[1] < lengths[1]:
        return None
    return table[..., : lengths[0], : lengths[1]]


def _over_blocks(kept: torch.Tensor, block: tuple[int, int], *, fill: bool) -> torch.Tensor:
    """`[batch, heads, rows, block_q, columns, block_kv]`, filled up at the ends."""
    rows, columns = (-(-size // side) for size, side in zip(kept.shape[-2:], block, strict=True))
    missing = (0, columns * block[1] - kept.shape[-1], 0, rows * block[0] - kept.shape[-2])
    whole = pad(kept, missing, value=fill)
    return whole.reshape(*kept.shape[:2], rows, block[0], columns, block[1])


_MOST_PAIRS: Final = 1 << 26  # of categories; sums of them fit 32 bits

Range = tuple[torch.Tensor, torch.Tensor]  # of indices, both ends included


@dataclass(frozen=True)
class PairCounts:
    """`before[…, r, c]`: how many pairs are allowed before row r and column c, int32 `[batch,
    heads, rows + 1, columns + 1]`; sizes are 1 if all are alike."""

    before: torch.Tensor

    def within(self, at: At, rows: Range, columns: Range) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether every pair of categories in these ranges is allowed, and whether some is.

        Categories past the end of a table count as its last one.
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
    """Whether all entries that a Boolean reading may see in a tile are True, and whether some is.

    None unless exactly one index of the reading depends on both positions.

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
