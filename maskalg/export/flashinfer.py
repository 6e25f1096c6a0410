"""A mask in FlashInfer's formats: blocks, blocks of any size, and packed bits.

Fields have the names of the arguments that FlashInfer takes: `wrapper.plan(**found._asdict(), …)`.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import torch

from ..engine.evaluate import kept_at
from ..engine.extents import Lengths
from ..engine.normal_form import bound
from ..errors import MaskValueError
from ..formula.expression import Expression
from .attention_slices import one_mask_only
from .block_lists import BlockLists
from .elements import Elements

_AT_ONCE: Final = 1 << 22  # elements of blocks that are evaluated together
_MOST_ELEMENTS: Final = 1 << 32
_MOST_BLOCKS: Final = 1 << 24


class FlashInferBlocks(NamedTuple):
    """The blocks of `BlockSparseAttentionWrapper.plan`, in compressed rows.

    Attributes:
        indptr: int32 `[rows + 1]`, where the blocks of each row of blocks begin.
        indices: int32 `[blocks]`, their columns, ascending in each row.
        M, N: number of queries and of keys.
        R, C: queries and keys of a block; the last row of blocks may be cut.
        mask: bool `[blocks, R, C]`, the elements of each block; None where all are kept.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    M: int
    N: int
    R: int
    C: int
    mask: torch.Tensor | None

    def to_dense(self) -> torch.Tensor:
        """The mask read back, Boolean `[1, 1, M, N]`."""
        rows, columns = len(self.indptr) - 1, self.N // self.C
        cells = self.indices.new_zeros((rows, columns, self.R, self.C), dtype=torch.bool)
        row = torch.arange(rows, device=cells.device).repeat_interleave(self.indptr.diff())
        cells[row, self.indices.long()] = True if self.mask is None else self.mask
        return cells.transpose(1, 2).reshape(1, 1, rows * self.R, self.N)[:, :, : self.M]


class FlashInferVariable(NamedTuple):
    """The blocks of `VariableBlockSparseAttentionWrapper.plan`, each kept whole or not at all.

    Attributes:
        block_mask_map: bool `[heads, rows, columns]`, whether a block is kept.
        block_row_sz: int32 `[heads, rows]`, the queries of each row of blocks.
        block_col_sz: int32 `[heads, columns]`, the keys of each column.
    """

    block_mask_map: torch.Tensor
    block_row_sz: torch.Tensor
    block_col_sz: torch.Tensor

    def to_dense(self) -> torch.Tensor:
        """The mask read back, Boolean `[1, heads, queries, keys]`."""
        parts = zip(self.block_mask_map, self.block_row_sz, self.block_col_sz, strict=True)
        found = [
            kept.repeat_interleave(rows, 0).repeat_interleave(columns, 1)
            for kept, rows, columns in parts
        ]
        return torch.stack(found)[None]


class FlashInferBits(NamedTuple):
    """The elements as bits, for `single_prefill_with_kv_cache` and `…PrefillWith…Wrapper.plan`.

    Attributes:
        packed_custom_mask: uint8 `[batch * ceil(q_len * kv_len / 8)]`, a bit for each element, the
            lowest first, rows one after the other; each batch entry begins with a byte.
    """

    packed_custom_mask: torch.Tensor

    def to_dense(self, q_len: int, kv_len: int) -> torch.Tensor:
        """The mask read back, Boolean `[batch, 1, q_len, kv_len]`."""
        size = -(-q_len * kv_len // 8)
        batch = len(self.packed_custom_mask) // size if size else 1
        bits = np.unpackbits(self.packed_custom_mask.cpu().numpy(), bitorder="little")
        rows = bits.reshape(batch, -1)[:, : q_len * kv_len]
        return torch.from_numpy(rows.reshape(batch, 1, q_len, kv_len)).bool()


def to_blocks(mask: Expression, lists: BlockLists) -> FlashInferBlocks:
    """The blocks of a mask that is the same for batch and heads; see `BlockMap.to_flashinfer`.

    Raises:
        ValueError: a mask that differs between batch entries or heads; a number of keys that the
            block does not divide; too many elements.
    """
    (block_q, block_kv), (q_len, kv_len) = lists.block, lists.lengths
    batch, heads = lists.partial.shape[:2]
    if batch > 1 or heads > 1:
        raise one_mask_only("to_flashinfer", batch, heads)
    if kv_len % block_kv:
        raise MaskValueError(
            f"to_flashinfer: FlashInfer's blocks divide the keys, and blocks of {block_kv} do not "
            f"divide {kv_len} keys. Write block=(block_q, block_kv) with a block_kv that does, or "
            "pad the keys and drop the padding with `& padding(lengths)`."
        )
    whole = lists.full[0, 0]
    row, column = (lists.partial[0, 0] | whole).nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=whole.shape[0])
    indptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    elements = None
    if not bool(whole[row, column].all()):
        if len(row) * block_q * block_kv > _MOST_ELEMENTS:
            raise MaskValueError(
                f"to_flashinfer: {len(row):,} blocks of {lists.block[0]} x {lists.block[1]} need "
                "masks, of a byte for each element. Write a mask whose blocks are full, such as "
                "block_table, or a larger block."
            )
        elements = _elements(mask, row, column, lists)
    columns = column.to(torch.int32)
    return FlashInferBlocks(indptr, columns, q_len, kv_len, block_q, block_kv, elements)


def to_variable(
    mask: Expression, intervals: torch.Tensor, kv_len: int, heads: int | None = None
) -> FlashInferVariable:
    """Rows and columns cut wherever two neighbours differ; see `Mask.to_flashinfer`.

    Args:
        intervals: from `key_intervals`, int32 `[2, batch, heads, intervals, q_len]`.
        heads: how many heads to list, if one mask serves all.

    Raises:
        ValueError: a mask that differs between batch entries, or that has too many blocks.
    """
    _, batch, told_apart, _, q_len = intervals.shape
    if batch > 1:
        raise MaskValueError(
            'to_flashinfer(form="variable"): the format holds one mask for the whole batch, this '
            f"one differs between {batch} batch entries. Export each on its own, with its own "
            "tensors."
        )
    ends = intervals[:, 0].long()
    row_cut = torch.ones(q_len, dtype=torch.bool, device=ends.device)
    row_cut[1:] = (ends[..., 1:] != ends[..., :-1]).flatten(0, 2).any(dim=0)
    column_cut = torch.zeros(kv_len + 1, dtype=torch.bool, device=ends.device)
    column_cut[0] = column_cut[kv_len] = True
    column_cut[ends.flatten()] = True
    starts = [row_cut.nonzero()[:, 0], column_cut[:kv_len].nonzero()[:, 0]]
    shape = (told_apart, len(starts[0]), len(starts[1]))
    if math.prod(shape) > _MOST_BLOCKS:
        raise MaskValueError(
            f'to_flashinfer(form="variable"): {mask} has {shape[1]:,} x {shape[2]:,} '
            'blocks that are kept whole or not at all, too many to list. Write form="blocks", '
            "whose blocks have masks."
        )
    # Columns at which the intervals of a row of blocks begin count 1, those at which they end -1.
    first, end = (column_cut.cumsum(0) - 1)[ends[..., starts[0]]].mT
    inside = first.new_zeros((*shape[:2], shape[2] + 1), dtype=torch.int8)
    one = inside.new_ones(()).expand(first.shape)
    inside.scatter_add_(2, first, one).scatter_add_(2, end, -one)
    kept = inside.cumsum(dim=2, dtype=torch.int8)[..., :-1] > 0
    sizes = [
        torch.cat([start, start.new_tensor([length])]).diff().to(torch.int32)
        for start, length in zip(starts, (q_len, kv_len), strict=True)
    ]
    listed = told_apart if heads is None else heads
    fields = (kept, *(size[None] for size in sizes))
    return FlashInferVariable(*(t.expand(listed, *t.shape[1:]).contiguous() for t in fields))


def to_bits(mask: Expression, lengths: Lengths) -> FlashInferBits:
    """The elements as bits; see `Mask.to_flashinfer`.

    Raises:
        ValueError: a mask that differs between heads; too many elements.
    """
    elements = Elements("to_flashinfer", mask, lengths, ("head",))
    sizes, extents = elements.sizes, elements.extents
    if sizes.heads > 1:
        raise one_mask_only("to_flashinfer", 1, sizes.heads)
    entries = sizes.batch if lengths.batch is None else lengths.batch
    if entries * extents.q_len * extents.kv_len > 8 * _MOST_ELEMENTS:
        raise MaskValueError(
            f'to_flashinfer(form="bits"): {extents.q_len:,} x {extents.kv_len:,} elements are too '
            'many to write out. Write form="blocks".'
        )
    rows = [kept[:, 0].cpu().numpy() for _, kept in elements.by_rows()]
    whole = np.concatenate(rows, axis=1) if rows else np.zeros((sizes.batch, 0, 0), dtype=np.bool_)
    bits = np.packbits(whole.reshape(len(whole), -1), axis=1, bitorder="little")
    packed = torch.from_numpy(bits).expand(entries, -1).reshape(-1)
    return FlashInferBits(packed.to(elements.device))


def _elements(
    mask: Expression, row: torch.Tensor, column: torch.Tensor, lists: BlockLists
) -> torch.Tensor:
    """The elements of blocks, bool `[blocks, block_q, block_kv]`, False past the last query."""
    form, (block_q, block_kv) = bound(mask), lists.block
    zero = torch.zeros((1, 1, 1), dtype=torch.int64, device=row.device)
    found = torch.empty((len(row), block_q, block_kv), dtype=torch.bool, device=row.device)
    at_once = max(_AT_ONCE // (block_q * block_kv), 1)
    for begin in range(0, len(row), at_once):
        part = slice(begin, begin + at_once)
        query = row[part, None] * block_q + torch.arange(block_q, device=row.device)
        key = column[part, None] * block_kv + torch.arange(block_kv, device=row.device)
        indices = {
            "batch": zero,
            "head": zero,
            "q_idx": query.clamp(max=max(lists.lengths[0] - 1, 0))[:, :, None],
            "kv_idx": key[:, None, :],
        }
        kept = kept_at(form, indices)
        found[part] = kept & (query < lists.lengths[0])[:, :, None]
    return found
