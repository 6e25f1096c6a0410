"""`mask.cost()`: what attention under a mask has to compute, counted without a dense matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..engine.extents import dependence
from ..engine.normal_form import bound
from ..formula.expression import Expression
from ..schedule.block_map import blocks
from ..schedule.rung import rung_of
from ..schedule.segments import Segments, segments
from ..schedule.tiling import block_pair
from .counts import kept_pairs
from .domain import Lengths

_MOST_BLOCKS: Final = 1 << 20


@dataclass(frozen=True)
class Cost:
    """Elements, blocks and operations of attention under a mask, for all batch entries and heads.

    Attributes:
        kept: elements that are kept; `total` is how many there are.
        empty, partial, full: blocks by label. Unless `labelled`, some of the partial ones may be
            empty or full: these are what `mask.segments` names, and what a kernel treats as such.
        visited: elements of the blocks that `mask.segments` names: what a kernel computes.
        block: `(block_q, block_kv)`.
        labelled: whether the blocks were told apart as `mask.blocks` does. They are where intervals
            decide them, and where there are at most 1,048,576 of them.
    """

    kept: int
    total: int
    empty: int
    partial: int
    full: int
    visited: int
    block: tuple[int, int]
    labelled: bool

    def forward_flops(self, head_dim: int, value_dim: int | None = None) -> int:
        """Operations of q k^T and p v on the kept elements; a multiply-add is two.

        Args:
            head_dim: of queries and keys.
            value_dim: of values, where it is another.
        """
        return 2 * self.kept * (head_dim + (head_dim if value_dim is None else value_dim))

    def backward_flops(self, head_dim: int, value_dim: int | None = None) -> int:
        """Operations of the five products of the backward pass, scores recomputed.

        With `value_dim = head_dim` that is 2.5 times the forward pass, as FlashAttention counts.
        """
        value_dim = head_dim if value_dim is None else value_dim
        return 2 * self.kept * (3 * head_dim + 2 * value_dim)

    def __str__(self) -> str:
        share = self.kept / max(self.total, 1)
        side = " x ".join(str(length) for length in self.block)
        return (
            f"kept      {self.kept:,} of {self.total:,} elements ({share:.2%})\n"
            f"blocks    {self.empty:,} empty, {self.partial:,} partial, {self.full:,} full "
            f"({side}{'' if self.labelled else '; not all of them labelled'})\n"
            f"visited   {self.visited:,} elements\n"
            f"forward   {self.forward_flops(1):,} x head_dim operations\n"
            f"backward  {self.backward_flops(1):,} x head_dim operations"
        )


def cost(mask: Expression, lengths: Lengths, block: int | tuple[int, int]) -> Cost:
    """The cost of attention under a mask; see `Mask.cost`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = lengths.extents(form)
    assert extents is not None
    batch, heads = extents.batch, extents.heads
    q_len, kv_len = extents.q_len, extents.kv_len
    kept = kept_pairs(form, extents)  # first: where this is refused, all else would be for nothing
    visits = segments(mask, q_len, kv_len, block=pair, batch=batch, heads=heads)
    sizes = dependence(form.structure.mask, form, extents)
    empty, partial, full = visits.counts()
    decided = rung_of(form.structure).decides_every_tile(form)
    labelled = decided or empty + partial + full <= _MOST_BLOCKS
    if labelled and not decided:
        found = blocks(mask, q_len, kv_len, block=pair, batch=batch, heads=heads)
        empty, partial, full = found.counts()
    # Batch entries and heads that the mask does not tell apart cost the same.
    times = (extents.batch // max(sizes.batch, 1)) * (extents.heads // max(sizes.heads, 1))
    return Cost(
        kept=times * kept,
        total=extents.batch * extents.heads * extents.q_len * extents.kv_len,
        empty=times * empty,
        partial=times * partial,
        full=times * full,
        visited=times * elements_of(visits),
        block=pair,
        labelled=labelled,
    )


def elements_of(visits: Segments, label: int | None = None) -> int:
    """Elements of the tiles of segments, or of those of a label; the last ones may be cut."""
    block_q, block_kv = visits.block
    rows = torch.arange(len(visits.row_start) - 1).repeat_interleave(visits.row_start.diff())
    start = rows % max(visits.shape[2], 1) * block_q
    height = (start + block_q).clamp(max=visits.q_len) - start
    width = (visits.end.long() * block_kv).clamp(max=visits.kv_len) - visits.first.long() * block_kv
    area = height * width
    return int((area if label is None else area[visits.label == label]).sum())
