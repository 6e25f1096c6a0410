"""Labels of blocks as the lists that FlexAttention and FlashAttention-4 take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ..formula.expression import Expression
from .flex_functions import flex_function

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Ordered = tuple[torch.Tensor, torch.Tensor]

_AT_ONCE: Final = 1 << 17  # blocks that are listed together


@dataclass(frozen=True, eq=False)
class BlockLists:
    """Blocks a kernel masks and blocks it takes whole, Boolean `[batch, heads, rows, columns]`.

    A block cut by a length is masked there, also where all of its elements in range are kept: the
    kernels compute whole blocks. `block` is `(block_q, block_kv)`, `lengths` queries and keys.
    """

    partial: torch.Tensor
    full: torch.Tensor
    block: tuple[int, int]
    lengths: tuple[int, int]


def _ordered(chosen: torch.Tensor) -> Ordered:
    """How many blocks of each row are chosen, and their columns: int32 `[…, rows]`, `[…, columns]`.

    Columns ascend. The other columns follow, ascending too, as torch pads its lists.
    """
    counts = chosen.sum(dim=-1, dtype=torch.int32)
    columns = torch.empty(chosen.shape, dtype=torch.int32, device=chosen.device)
    size = chosen.shape[-1]
    column = torch.arange(size, device=chosen.device)
    at_once = max(_AT_ONCE // max(size, 1), 1)
    # A block's place counts the blocks before it: sorting 8192 rows of 8192 takes half a minute.
    lists = (chosen.flatten(0, -2), counts.flatten(), columns.flatten(0, -2))
    for some, count, found in zip(*(each.split(at_once) for each in lists), strict=True):
        before = some.cumsum(dim=-1)
        place = torch.where(some, before - 1, count[:, None] + column - before)
        found.scatter_(1, place, column.to(torch.int32).expand(place.shape))
    return counts, columns


def to_flex(lists: BlockLists, mask: Expression, separate_full_blocks: bool) -> BlockMask:
    """The `BlockMask` of a block map; see `BlockMap.to_flex`."""
    from torch.nn.attention.flex_attention import BlockMask

    if separate_full_blocks:
        masked, full = lists.partial, lists.full
    else:
        masked, full = lists.partial | lists.full, None
    none = (None, None)
    counts, columns = _ordered(masked)
    full_counts, full_columns = none if full is None else _ordered(full)
    # Lists of the transposed map, which `BlockMask.from_kv_blocks` would make by sorting.
    q_counts, q_columns = _ordered(masked.mT)
    full_q_counts, full_q_columns = none if full is None else _ordered(full.mT)
    return BlockMask(
        lists.lengths,
        counts,
        columns,
        full_counts,
        full_columns,
        q_counts,
        q_columns,
        full_q_counts,
        full_q_columns,
        BLOCK_SIZE=lists.block,
        mask_mod=flex_function(mask),
    )


class BlockSparseTensors(NamedTuple):
    """Which blocks each row of blocks visits, under the names of `BlockSparseTensorsTorch`.

    Attributes:
        mask_block_cnt: int32 `[batch, heads, rows]`, how many blocks of the row are masked.
        mask_block_idx: int32 `[batch, heads, rows, most]`, their columns, ascending. Entries from
            `mask_block_cnt` on are not read; `most` is the largest count, at least 1.
        full_block_cnt, full_block_idx: likewise for blocks that are not masked.
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
    counts, columns = _ordered(chosen)
    most = max(int(counts.max()), 1) if counts.numel() else 1
    # A copy, since `contiguous` keeps the stride of an axis of size 1, which the kernels read.
    return counts, columns[..., :most].clone(memory_format=torch.contiguous_format)
