"""Blocks as FlashAttention-4's block-sparse tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from .block_lists import BlockLists, ordered


class BlockSparseTensors(NamedTuple):
    """Which blocks each row of blocks visits, under the names of `BlockSparseTensorsTorch`.

    Attributes:
        mask_block_cnt: int32 `[batch, heads, rows]`, how many blocks of the row are masked.
        mask_block_idx: int32 `[batch, heads, rows, most]`, their columns, ascending. Entries from
            `mask_block_cnt` on are not read; `most` is the largest count, at least 1.
        full_block_cnt, full_block_idx: the same of blocks that are not masked.
        block_size: `(block_q, block_kv)`, also of the transposed tensors.
    """

    mask_block_cnt: torch.Tensor
    mask_block_idx: torch.Tensor
    full_block_cnt: torch.Tensor
    full_block_idx: torch.Tensor
    block_size: tuple[int, int]


def to_fa4(lists: BlockLists) -> tuple[BlockSparseTensors, BlockSparseTensors]:
    """The tensors of a block map for both passes; see `BlockMap.to_fa4`."""
    transposed = replace(lists, partial=lists.partial.mT, full=lists.full.mT)
    return _tensors(lists), _tensors(transposed)


def _tensors(lists: BlockLists) -> BlockSparseTensors:
    return BlockSparseTensors(*_compact(lists.partial), *_compact(lists.full), lists.block)


def _compact(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    counts, columns = ordered(chosen)
    most = max(int(counts.max()), 1) if counts.numel() else 1
    # A copy, since `contiguous` keeps the stride of an axis of size 1, which the kernels read.
    return counts, columns[..., :most].clone(memory_format=torch.contiguous_format)
