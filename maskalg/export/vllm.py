"""A mask as vLLM's FlexAttention backend takes it: a function, and a hint of its blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..engine.normal_form import bound
from ..errors import MaskValueError
from ..formula.expression import Expression
from .attention_slices import one_mask_only
from .flex_functions import flex_function

Hint = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


class VllmMask(NamedTuple):
    """`FlexAttentionMetadata.logical_mask_mod`, and the function of its `BlockSparsityHint`.

    Attributes:
        logical_mask_mod: FlexAttention's `mask_mod(b, h, q_idx, kv_idx)` over positions of a
            request.
        hint_fn: `hint_fn(q_block, kv_block, block_size)`, True for blocks that may keep a pair:
            those that the proof does not call empty, found for all positions below `length`.
        block_size: positions of a block of the cache, for which the hint was found.
        length: most positions of a request.
    """

    logical_mask_mod: Callable[..., torch.Tensor]
    hint_fn: Hint
    block_size: int
    length: int

    def to_dense(self, q_len: int | None = None) -> torch.Tensor:
        """The pairs that both functions keep, as vLLM combines them, `[1, 1, q_len, q_len]`."""
        place = torch.arange(self.length if q_len is None else q_len)
        zero = torch.zeros((1, 1, 1, 1), dtype=torch.int64)
        kept = self.logical_mask_mod(zero, zero, place.view(1, 1, -1, 1), place.view(1, 1, 1, -1))
        block = place // self.block_size
        return kept & self.hint_fn(block[:, None], block[None, :], self.block_size)


class VllmRanges(NamedTuple):
    """`mm_prefix_range`: ranges of a request whose tokens see each other, beside causal attention.

    Attributes:
        mm_prefix_range: first and last position of each range, both included, by request.
        length: positions of a request.
    """

    mm_prefix_range: dict[int, list[tuple[int, int]]]
    length: int

    def to_dense(self) -> torch.Tensor:
        """The mask read back, Boolean `[requests, 1, length, length]`."""
        place = torch.arange(self.length)
        found = [torch.zeros(0, self.length, self.length, dtype=torch.bool)]
        for ranges in self.mm_prefix_range.values():
            kept = place[:, None] >= place
            for first, last in ranges:
                inside = (place >= first) & (place <= last)
                kept = kept | (inside[:, None] & inside)
            found.append(kept[None])
        return torch.cat(found)[:, None]


def to_vllm(
    mask: Expression,
    shape: tuple[int, int, int],
    runs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    block_size: int,
    length: int,
) -> VllmMask:
    """The functions of a causal mask.

    Args:
        mask: the mask.
        shape: batch entries and heads that it tells apart, and rows of blocks.
        runs: where the runs of each row of blocks begin, int32 `[rows + 1]`; first blocks and ends
            of the runs that are not empty, int32 `[runs]`.
        block_size: positions of a block.
        length: most positions of a request.

    Raises:
        ValueError: a mask that differs between batch entries or heads.
    """
    if shape[0] > 1 or shape[1] > 1:
        raise one_mask_only("to_vllm", shape[0], shape[1])
    row_start, first, end = runs
    counts = row_start.diff()
    most = max(int(counts.max()), 1) if len(counts) else 1
    table = torch.zeros((2, len(counts), most), dtype=torch.int32, device=first.device)
    row = torch.arange(len(counts), device=first.device).repeat_interleave(counts)
    place = torch.arange(len(row), device=first.device) - row_start[row]
    table[0, row, place], table[1, row, place] = first, end
    tables = {table.device: table}  # vLLM asks on a GPU

    def hint_fn(q_block: torch.Tensor, kv_block: torch.Tensor, size: int) -> torch.Tensor:
        if size != block_size:
            raise MaskValueError(
                f"to_vllm: the hint was found for blocks of {block_size}, and vLLM's cache has "
                f"blocks of {size}. Write mask.to_vllm(length, block_size={size})."
            )
        if kv_block.device not in tables:
            tables[kv_block.device] = table.to(kv_block.device)
        firsts, ends = tables[kv_block.device]
        row = q_block.clamp(max=len(counts) - 1)
        found = torch.zeros((), dtype=torch.bool, device=kv_block.device)
        for number in range(most):
            begin, past = firsts[:, number][row], ends[:, number][row]
            found = found | ((kv_block >= begin) & (kv_block < past))
        return found

    function = flex_function(mask)

    def within(
        b: torch.Tensor, h: torch.Tensor, q_idx: torch.Tensor, kv_idx: torch.Tensor
    ) -> torch.Tensor:
        # vLLM asks for whole blocks, and drops positions outside of a request afterwards.
        kept = function(b, h, q_idx.clamp(0, length - 1), kv_idx.clamp(0, length - 1))
        return kept & (q_idx < length) & (kv_idx < length)

    reads = bound(mask).structure.tables
    return VllmMask(within if reads else function, hint_fn, block_size, length)


def to_ranges(
    mask: Expression, intervals: torch.Tensor, length: int, batch: int | None
) -> VllmRanges:
    """The ranges of `causal | …` from `key_intervals`, int32 `[2, batch, 1, intervals, length]`.

    Requests that share them are `batch`.

    Raises:
        ValueError: a mask that is not causal attention beside ranges that see each other.
    """
    if intervals.shape[2] > 1:
        raise one_mask_only("to_vllm", 1, intervals.shape[2])
    if batch is not None:
        intervals = intervals.expand(-1, batch, -1, -1, -1)
    starts, ends = (each[:, 0] for each in intervals.cpu().unbind(0))
    place = torch.arange(length)
    found: dict[int, list[tuple[int, int]]] = {}
    for request, (start, end) in enumerate(zip(starts, ends, strict=True)):
        past = end[0].long()
        first_only = (start[0] == 0) & (start[1:] >= end[1:]).all(dim=0)
        begins = torch.ones(length, dtype=torch.bool)
        begins[1:] = past[1:] != past[:-1]
        part = begins.cumsum(0)  # queries that see keys up to the same one
        last = (past - 1).clamp(min=0)
        wrong = (~first_only | (past <= place) | (part[last] != part)).nonzero()
        if len(wrong):
            raise MaskValueError(
                f'to_vllm(form="ranges"): query {int(wrong[0])} of {mask} does not keep exactly '
                "the keys up to itself and those of one range of tokens that see each other. Write "
                '`causal | spans(ids)`, or form="function".'
            )
        some = begins & (last > place)
        found[request] = list(zip(place[some].tolist(), last[some].tolist(), strict=True))
    return VllmRanges(found, length)
