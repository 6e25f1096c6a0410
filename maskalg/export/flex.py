"""Blocks as FlexAttention's `BlockMask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formula.expression import Expression
from .block_lists import BlockLists, ordered
from .flex_functions import flex_function

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def to_flex(lists: BlockLists, mask: Expression, separate_full_blocks: bool) -> BlockMask:
    """The `BlockMask` of a block map; see `BlockMap.to_flex`."""
    from torch.nn.attention.flex_attention import BlockMask

    counts, columns = ordered(lists.partial if separate_full_blocks else lists.partial | lists.full)
    full_counts, full_columns = ordered(lists.full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(
        counts,
        columns,
        full_counts,
        full_columns,
        BLOCK_SIZE=lists.block,
        mask_mod=flex_function(mask),
        seq_lengths=lists.lengths,
    )
