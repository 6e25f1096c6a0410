"""FlexAttention's `BlockMask`: the blocks it lists, and its function in those that are partial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..values.algebra import Mask
from ..values.masks.block_table import block_table


def is_block_mask(found: object) -> bool:
    """Told by name: FlexAttention is not imported for it."""
    return type(found).__name__ == "BlockMask"


def of_block_mask(found: Any, mask: Callable[[Any], Mask]) -> Mask:
    """The mask of a `BlockMask`; `mask` traces its function."""
    block: tuple[int, int] = found.BLOCK_SIZE
    columns = max(found.kv_indices.shape[-1], -(-found.seq_lengths[1] // block[1]))
    partial = block_table.from_kv_indices(
        found.kv_indices, block, columns=columns, kv_num_blocks=found.kv_num_blocks
    )
    kept = partial & mask(found.mask_mod)
    if found.full_kv_indices is None:
        return kept
    return kept | block_table.from_kv_indices(
        found.full_kv_indices, block, columns=columns, kv_num_blocks=found.full_kv_num_blocks
    )
