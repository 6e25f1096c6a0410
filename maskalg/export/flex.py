"""Blocks as FlexAttention's `BlockMask`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..schedule.block_map import BlockMap
from .block_lists import block_lists, ordered

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def to_flex(
    found: BlockMap,
    batch: int | None,
    heads: int | None,
    device: torch.device | str | None,
    separate_full_blocks: bool,
) -> BlockMask:
    """The `BlockMask` of a block map; see `BlockMap.to_flex`."""
    from torch.nn.attention.flex_attention import BlockMask

    lists = block_lists("to_flex", found, batch, heads, device)
    counts, columns = ordered(lists.partial if separate_full_blocks else lists.partial | lists.full)
    full_counts, full_columns = ordered(lists.full) if separate_full_blocks else (None, None)
    mask = found.mask if device is None else found.mask.to(device)
    return BlockMask.from_kv_blocks(
        counts,
        columns,
        full_counts,
        full_columns,
        BLOCK_SIZE=found.block,
        mask_mod=mask.to_mask_mod(),
        seq_lengths=(found.q_len, found.kv_len),
    )
