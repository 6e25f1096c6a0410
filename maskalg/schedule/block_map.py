"""`mask.blocks()` and `mask.segments()`: the label of every block, and the visits of each tile row.

Blocks that the proof leaves open are evaluated, so labels of blocks are exact. Segments leave such
tiles PARTIAL, though they may be EMPTY or FULL; all other tiles have the same label in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..engine.extents import Lengths, is_untold, resolve
from ..engine.normal_form import bound
from ..errors import MaskValueError
from ..export.block_lists import BlockLists, BlockSparseTensors, to_fa4, to_flex
from ..export.flashinfer import FlashInferBlocks, to_blocks
from ..formula.expression import Expression
from ..formula.printing import Shown
from .rung import rung_of
from .summaries.labels import looked_at
from .tile_runs import FULL, PARTIAL, TileRuns, counts_of, label_of
from .tiling import Tiling, block_pair

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass(frozen=True, eq=False)
class Segments(TileRuns, Shown):
    """The tiles of keys that each tile of queries visits, as ordered, disjoint ranges.

    Row `r = (batch_index * heads + head_index) * rows + tile` owns the segments from
    `row_start[r]` up to, not including, `row_start[r + 1]`. Neighbours that touch have different
    labels, and a row with nothing to visit has no segments.

    Attributes:
        row_start: int32 `[batch * heads * rows + 1]`, where the segments of each row begin.
        first, end: int32 `[segments]`, the tiles `first <= tile < end`.
        label: int32 `[segments]`, PARTIAL=1 or FULL=2.
        shape: `(batch, heads, rows)`; batch and heads are 1 where the mask does not depend on
            them.
        block: `(block_q, block_kv)`; the last row and column may be cut by the lengths.
        q_len, kv_len: lengths in positions.

    No kept element is outside of the segments, and FULL segments hold full tiles only. PARTIAL
    segments may hold empty or full tiles that the proof leaves open; `mask.blocks` evaluates those.
    """

    block: tuple[int, int]
    q_len: int
    kv_len: int

    def counts(self) -> tuple[int, int, int]:
        """How many tiles are outside of the segments, in PARTIAL segments and in FULL segments."""
        tiles = self.tiles
        partial, full = (int(tiles[self.label == label].sum()) for label in (PARTIAL, FULL))
        batches, heads, rows = self.shape
        columns = -(-self.kv_len // self.block[1])
        return batches * heads * rows * columns - partial - full, partial, full

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        arrays = (self.row_start, self.first, self.end, self.label)
        return sum(array.numel() * array.element_size() for array in arrays)

    def __repr__(self) -> str:
        empty, partial, full = self.counts()
        return (
            f"Segments(q_len={self.q_len}, kv_len={self.kv_len}, block={self.block}, "
            f"segments={len(self.first)}, empty={empty}, partial={partial}, full={full})"
        )


def segments(mask: Expression, lengths: Lengths, block: int | tuple[int, int]) -> Segments:
    """The row schedule of a mask; see `Mask.segments`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = resolve(form, lengths)
    runs = rung_of(form.structure).runs(Tiling(form, extents, pair))
    arrays = (runs.row_start, runs.first, runs.end, runs.label)
    return Segments(*arrays, runs.shape, pair, extents.q_len, extents.kv_len)


@dataclass(frozen=True, eq=False)
class BlockMap(Shown):
    """Labels of the blocks of an attention matrix.

    Attributes:
        labels: uint8 `[batch, heads, rows, columns]`, EMPTY=0, PARTIAL=1, FULL=2; size 1 where
            the mask does not depend on batch or head.
        block: `(block_q, block_kv)`; the last row and column may be cut by the lengths.
        q_len, kv_len: lengths in positions.
        evaluated: how many blocks the proof left open, so that their elements were evaluated.
        mask: the mask of the labels.
    """

    labels: torch.Tensor
    block: tuple[int, int]
    q_len: int
    kv_len: int
    evaluated: int
    mask: Expression

    def counts(self) -> tuple[int, int, int]:
        """How many blocks are empty, partial and full."""
        return counts_of(self.labels)

    @property
    def sparsity(self) -> float:
        """Share of blocks that are empty."""
        return self.counts()[0] / max(self.labels.numel(), 1)

    def to_flex(
        self,
        *,
        batch: int | None = None,
        heads: int | None = None,
        device: torch.device | str | None = None,
        separate_full_blocks: bool = True,
    ) -> BlockMask:
        """FlexAttention's `BlockMask`, as its `create_block_mask` makes it, without the matrix.

        Counts and indices are equal to the last padding entry, and `mask_mod` is attached. A
        block that a length cuts is partial there, full here.

        Args:
            batch: how many batch entries to write out, if the mask is the same for all; by default
                that axis has size 1, which FlexAttention broadcasts.
            heads: how many heads, likewise.
            device: device of the result; by default that of the mask's tensors.
            separate_full_blocks: list full blocks apart, so that they are not masked.

        Raises:
            ValueError: a batch or heads other than those the blocks were found for.

        Source: `torch.nn.attention.flex_attention`.
        """
        lists = self._lists("to_flex", batch, heads, device)
        mask = self.mask if device is None else self.mask.to(device)
        return to_flex(lists, mask, separate_full_blocks)

    def to_fa4(
        self,
        *,
        batch: int | None = None,
        heads: int | None = None,
        device: torch.device | str | None = None,
    ) -> tuple[BlockSparseTensors, BlockSparseTensors]:
        """FlashAttention-4's block-sparse tensors for the forward and for the backward pass.

        Fields have the names of its `BlockSparseTensorsTorch`, which has further ones:
        `BlockSparseTensorsTorch(**forward._asdict())`. The tensors of the backward pass are
        transposed: rows stand for blocks of keys, entries for blocks of queries. FlashAttention-4
        needs them on a GPU, with `block[1]` equal to its tile of keys and `block[0]` a multiple of
        the queries that a program takes, and a `mask_mod` that you write beside them.

        Arguments and errors are those of `to_flex`.

        Source: FlashAttention-4 (Zadouri et al., 2026), `flash_attn.cute.block_sparsity`.
        """
        return to_fa4(self._lists("to_fa4", batch, heads, device))

    def to_flashinfer(self) -> FlashInferBlocks:
        """FlashInfer's block-sparse rows: blocks that are not empty, and the elements of each.

        `BlockSparseAttentionWrapper.plan(**found._asdict(), …)` takes them, on the device of the
        mask's tensors; `found.to_dense()` reads them back.

        Raises:
            ValueError: a mask that differs between batch entries or heads; a number of keys that
                the block does not divide.

        Source: FlashInfer 0.7, `flashinfer.sparse`.
        """
        partial, full = self.labels == PARTIAL, self.labels == FULL
        lengths = (self.q_len, self.kv_len)
        return to_blocks(self.mask, BlockLists(partial, full, self.block, lengths))

    def _lists(
        self, call: str, batch: int | None, heads: int | None, device: torch.device | str | None
    ) -> BlockLists:
        """The labels as lists of blocks, written out for `batch` entries and `heads` heads."""
        sizes = list(self.labels.shape[:2])
        form = bound(self.mask)
        asked = (("batch", "batch", batch), ("heads", "head", heads))
        for axis, (name, index, wanted) in enumerate(asked):
            if wanted is None:
                continue
            # Blocks of one requested batch entry or head do not serve the others.
            alike = sizes[axis] == 1 and not is_untold(form, index)
            if type(wanted) is not int or wanted < 1 or not (alike or sizes[axis] == wanted):
                raise written_out(call, name, wanted, sizes[axis])
            sizes[axis] = wanted
        labels = self.labels.to(device).expand(*sizes, -1, -1)
        full = labels == FULL
        if self.q_len % self.block[0]:
            full[:, :, -1] = False
        if self.kv_len % self.block[1]:
            full[..., -1] = False
        partial = ((labels == PARTIAL) | (labels == FULL)) & ~full
        return BlockLists(partial, full, self.block, (self.q_len, self.kv_len))

    def __repr__(self) -> str:
        empty, partial, full = self.counts()
        return (
            f"BlockMap(q_len={self.q_len}, kv_len={self.kv_len}, block={self.block}, "
            f"empty={empty}, partial={partial}, full={full}, evaluated={self.evaluated})"
        )


def blocks(mask: Expression, lengths: Lengths, block: int | tuple[int, int]) -> BlockMap:
    """The labels of a mask's blocks; see `Mask.blocks`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = resolve(form, lengths)
    tiling = Tiling(form, extents, pair)
    labels, places = rung_of(form.structure).labels(tiling)
    if len(places):
        labels[places.unbind(dim=1)] = label_of(*looked_at(tiling, places))
    return BlockMap(labels, pair, extents.q_len, extents.kv_len, places.shape[0], mask)


def written_out(call: str, name: str, wanted: object, found: int) -> MaskValueError:
    if found != 1:
        hint = f"Pass {found}, or leave {name} out."
    elif type(wanted) is int and wanted > 1:
        hint = f"The mask tells others apart: find them with mask.blocks(…, {name}={wanted})."
    else:
        hint = f"Pass an integer >= 1, or leave {name} out."
    return MaskValueError(
        f"{call}({name}={wanted!r}): the blocks were found for {name}={found}. {hint}"
    )
