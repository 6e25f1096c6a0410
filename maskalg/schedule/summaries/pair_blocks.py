"""Summaries of a tensor over pairs of positions: which blocks hold something, and which are full.

The tensor is read once for each block size and remembered while it lives unchanged, whatever
formulas it stands in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

import torch
from torch.nn.functional import pad

from ...engine.evaluate import Environment, evaluate
from ...formula.nodes import BATCH, HEAD, K, Node, Q
from ...formula.parameters import Slot
from ..memory import MEMORY
from ..positions.sets import At

_ELEMENTS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True)
class Blocks:
    """A Boolean for every block, `[batch, heads, rows, columns]`, 1 where they are all alike."""

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
    """The tensor itself, `[…, q_len, kv_len]`, where it is read at the plain indices."""
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
