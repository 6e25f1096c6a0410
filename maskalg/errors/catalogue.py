"""Of what single masks of the catalogue ask of their tensors."""

from __future__ import annotations

from .kinds import MaskValueError


def not_column_intervals(key: int, batch: int, head: int, count: int) -> MaskValueError:
    return MaskValueError(
        f"to_flashmask: key {key} (batch {batch}, head {head}) is hidden from {count} separate "
        "ranges of queries, and FlashMask's format holds two. Export a coarser mask, or use "
        "to_attention_slices or BlockMask instead."
    )


def one_mask_only(call: str, batch: int, heads: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the format holds one mask for the whole batch and all heads, this one differs "
        f"between {batch} batch entries and {heads} heads. Export each on its own, with the "
        "tensors of one entry."
    )
