"""Summaries of tensors over pairs: blocks that hold a kept pair, and counts of entries in ranges.

A tensor is read once for each block size and remembered while it lives unchanged, whatever formulas
use it. Entries within ranges of the indices are counted by sums up to the ends of the ranges.
"""

from __future__ import annotations

import math
from typing import Final, cast

import torch
from torch.nn.functional import pad

from ...engine.evaluate import Environment, evaluate
from ...engine.memory import MEMORY
from ...formula import nodes
from ...formula.nodes import BATCH, HEAD, K, Node, Q
from ...formula.parameters import Slot
from ...formula.separation import positions
from ...proof.closed_forms import Relation
from ..positions.relations import categories, sum_within, table_of
from ..positions.sets import At, over_positions, rows_at

_ELEMENTS_AT_ONCE: Final = 1 << 22


Pair = tuple[torch.Tensor, torch.Tensor]


def pair_blocks(
    node: Node, lengths: tuple[int, int], block: tuple[int, int], env: Environment
) -> Pair:
    """The blocks in which every pair satisfies a formula, and those in which some pair does.

    Bool `[batch, heads, rows, columns]` each; sizes are 1 if all are alike.
    """
    sizes = (env.indices["batch"].numel(), env.indices["head"].numel())
    return MEMORY.recall(
        ("pairs", lengths, block, sizes, env.device),
        (node,),
        env.values,
        lambda: _summarised(node, lengths, block, env),
    )


def _summarised(
    node: Node, lengths: tuple[int, int], block: tuple[int, int], env: Environment
) -> Pair:
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
    return torch.cat(every, dim=2), torch.cat(some, dim=2)


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


def allowed_within(
    relation: tuple[Node, Node, Node], rows: Range, columns: Range, at: At, env: Environment
) -> Pair | None:
    """Whether every pair of categories in ranges of a relation (see `related`) is allowed, and
    whether some is; None without entries, or with too many.

    Categories past the end of a table count as its last one.
    """
    node, f, g = relation
    sizes = categories(node, "q_idx", env), categories(node, "kv_idx", env)
    if not 0 < math.prod((*sizes, *_members(env))) <= _MOST_PAIRS:
        return None

    def counted() -> torch.Tensor:
        allowed = table_of(Relation(node, "q_idx", f, g), "kv_idx", sizes, env)
        counts = allowed.cumsum(dim=-1, dtype=torch.int32).cumsum(dim=-2, dtype=torch.int32)
        return pad(counts, (1, 0, 1, 0))

    key = ("pair counts", sizes, _members(env), env.device)
    before = MEMORY.recall(key, (node,), env.values, counted)
    (low, past), (left, right) = (
        _half_open(*ends) for ends in zip((rows, columns), sizes, strict=True)
    )
    count = sum_within(before, at, (low, past), (left, right))
    return count == (past - low) * (right - left), count > 0


def _half_open(ends: Range, size: int) -> Range:
    """The first index and one past the last; an index past the end counts as the last one."""
    return ends[0].clamp(0, size - 1), ends[1].clamp(0, size - 1) + 1


def entries_within(node: Node, ends: Range, at: At, env: Environment) -> Pair | None:
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
    low, past = _half_open(ends, size)
    count = rows_at(before, at, past) - rows_at(before, at, low)
    return count == past - low, count > 0


def _members(env: Environment) -> tuple[int, int]:
    return env.indices["batch"].numel(), env.indices["head"].numel()
