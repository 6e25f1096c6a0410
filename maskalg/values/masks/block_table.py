"""A table of blocks: which tiles of the attention matrix are kept."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries, booleans_or_integers, integers, of_rank, readable
from ...formula.nodes import BATCH, HEAD, SCORE, K, Node, Q
from ...formula.parameters import Parameter, Table
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import entries_within, integer, marked
from ..by_hand import BATCH_SIZE, HEADS, Bools, MaskRows, entry, padded, pairs, row
from ..helped import Ways

__all__ = ["block_table"]

Block = int | tuple[int, int]


class _BlockTable(Ways, name="block_table"):
    """Whole blocks that a table keeps or drops: `block_table(table, block)`, or from lists."""

    __slots__ = ()

    def __call__(self, table: Entries, block: Block, *, group: int = 1) -> Mask:
        """table[batch, head // group, q // block, k // block]: whole blocks are kept or dropped.

        Args:
            table: `[rows, columns]`, `[heads, rows, columns]` or `[batch, heads, rows, columns]`;
                Boolean, or integers of which 0 drops a block. Batch and heads of size 1 are
                broadcast.
            block: side of a block in positions, >= 1, or `(block_q, block_kv)`.
            group: query heads that share a table, >= 1: `heads // kv_heads` if there is one table
                per key head.

        Source: random blocks of BigBird (Zaheer et al., 2020); MoBA, NSA, Quest and VSA, which
        choose blocks by score.
        """
        sides = _sides("block_table", block)
        of_head = nodes.floordiv(HEAD, _of_heads(group))
        table = booleans_or_integers("block_table", "table", table)
        wanted = "[rows, columns], [heads, rows, columns] or [batch, heads, rows, columns]"
        of_rank("block_table", "table", table, (2, 3, 4), wanted)
        if of_head != HEAD and table.ndim > 2 and table.shape[-3] == 1:
            of_head = nodes.const(0)  # one table serves all heads
        entries = Table("table", table)
        (q_side, _), (k_side, _) = sides[0], sides[-1]
        leading = [BATCH, of_head][4 - table.ndim :]
        node = nodes.read(entries, *leading, nodes.floordiv(Q, q_side), nodes.floordiv(K, k_side))
        if node.kind == "int":
            node = nodes.negation(nodes.eq(node, nodes.const(0)))
        shared = [] if group == 1 else [f"group={group}"]
        label = called("block_table", entries, *[side for _, side in sides], *shared)
        return Mask(node, SCORE, label)

    def from_kv_indices(
        self,
        kv_indices: Entries,
        block: Block,
        *,
        columns: int,
        kv_num_blocks: Entries | None = None,
        group: int = 1,
    ) -> Mask:
        """The blocks of each row by number: FlexAttention's lists, or a top-k choice.

        Args:
            kv_indices: integer tensor `[…, rows, count]` of column numbers in any order, where … is
                nothing, `heads` or `batch, heads`.
            block: as `block_table` takes it.
            columns: number of columns of blocks.
            kv_num_blocks: integer tensor `[…, rows]`: how many entries of each row count, as in
                FlexAttention's `BlockMask`; by default all entries that are not negative.
            group: as `block_table` takes it.

        Raises:
            ValueError: on the CPU, a counted entry that is no column. On a GPU and in compiled
                functions entries are not checked, and such an entry keeps nothing.
        """
        call = "block_table.from_kv_indices"
        kv_indices = integers(call, "kv_indices", kv_indices)
        if kv_num_blocks is not None:
            kv_num_blocks = integers(call, "kv_num_blocks", kv_num_blocks)
        integer(call, "columns", columns, low=0)
        of_rank(call, "kv_indices", kv_indices, (2, 3, 4), "[…, rows, count]")
        if kv_num_blocks is None:
            counts = kv_indices >= 0
        else:
            if kv_num_blocks.shape != kv_indices.shape[:-1]:
                raise errors.tensor_shape(
                    call,
                    "kv_num_blocks",
                    list(kv_num_blocks.shape),
                    str(list(kv_indices.shape[:-1])),
                )
            places = torch.arange(kv_indices.shape[-1], device=kv_indices.device)
            counts = places < kv_num_blocks[..., None]
        if readable(counts):
            entries_within(call, "kv_indices", kv_indices[counts], 0, columns)
        return self(marked(torch.where(counts, kv_indices, -1), columns), block, group=group)


def _of_heads(group: object) -> Node:
    """A number of heads as a constant of the formula: models use few different ones."""
    integer("block_table", "group", group, low=1)
    return nodes.const(int(group))  # type: ignore[call-overload]


def _sides(call: str, block: object) -> list[tuple[Node, Parameter]]:
    """The side of a square block, or its two sides, along queries and along keys."""
    if isinstance(block, tuple) and len(block) == 2:
        return [
            integer(call, name, side, low=1)
            for name, side in zip(("block_q", "block_kv"), block, strict=True)
        ]
    return [integer(call, "block", block, low=1)]


block_table = _BlockTable()


# The second definition, and the rows of the catalogue.


def block_table_by_hand(
    table: ArrayLike, block: tuple[int, int], group: int = 1, **at: int
) -> Bools:
    """`table[b, h // group, q // block_q, k // block_kv] ≠ 0`."""
    given = padded(table, 4).repeat(group, 1)[:, :HEADS]

    def keep(b: int, h: int, q: int, k: int) -> bool:
        row, column = q // block[0], k // block[1]
        if not (0 <= row < given.shape[2] and 0 <= column < given.shape[3]):
            raise IndexError(f"block ({row}, {column}) is outside of {given.shape[2:]}")
        return entry(given, b, h, row, column) != 0

    return pairs(keep, given.shape[0], given.shape[1], **at)


def rows() -> MaskRows:
    random = np.random.default_rng(21)
    blocks = random.random((BATCH_SIZE, HEADS, 8, 11)) < 0.5
    pair = np.random.default_rng(22).random((1, 2, 8, 11)) < 0.5
    counts = random.integers(0, 5, (HEADS, 8))
    lists = random.permuted(np.tile(np.arange(11), (HEADS, 8, 1)), axis=2)
    listed = np.zeros((HEADS, 8, 11), np.bool_)
    for h, line in np.ndindex(HEADS, 8):
        listed[h, line, lists[h, line, : counts[h, line]]] = True
    values = random.integers(0, 3, (HEADS, 8, 8))
    return {
        "block table": row(block_table, block_table_by_hand, blocks[0, 0], (8, 6)),
        "block table per batch and head": row(block_table, block_table_by_hand, blocks, (8, 6)),
        "block table per group of heads": (
            block_table(pair, (8, 6), group=2),
            partial(block_table_by_hand, pair, (8, 6), 2),
        ),
        "block table of numbers": (
            block_table(values, 8),
            partial(block_table_by_hand, values, (8, 8)),
        ),
        "block table from lists": (
            block_table.from_kv_indices(lists, (8, 6), columns=11, kv_num_blocks=counts),
            partial(block_table_by_hand, listed, (8, 6)),
        ),
    }
