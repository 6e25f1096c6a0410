"""Tables written for other libraries from a mask and one call, read back pair by pair.

Lists of blocks, slices, ranges and bits are not formulas: a writer makes them for a call. The
readers here, and those of the formats themselves (`to_dense`), share nothing with the writers. They
count each pair, because a pair in two slices, or in a block listed twice, would be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch

from ..engine.extents import Extents, Lengths
from ..errors.kinds import MaskValueError
from ..export import to_attention_slices, to_flashmask
from ..export.cudnn import to_cudnn
from ..questions.rows import key_intervals
from ..values.algebra import Mask

BLOCK = 32
_SMALL = (16, 8)
"""FlashInfer's blocks have at most as many queries and keys; their keys divide those of a call."""

Read = Callable[[], torch.Tensor]


def tables_of_call(mask: Mask, call: Extents, kept: torch.Tensor) -> Iterator[tuple[str, Read]]:
    """The tables of a call: the name of each, and how often it computes and keeps each pair,
    `[batch, heads, q_len, kv_len]` (size 1 if the mask is the same for all).

    Raises:
        MaskValueError: when a table is read whose format cannot hold the mask.
    """
    q_len, kv_len, batch, heads = call.q_len, call.kv_len, call.batch, call.heads
    every = Lengths(q_len, kv_len, batch, heads)
    small = _SMALL[0], max(n for n in range(1, _SMALL[1] + 1) if kv_len % n == 0)

    def by_lists(title: str, turned: bool) -> torch.Tensor:
        blocks = mask.blocks(q_len, kv_len, block=BLOCK, batch=batch, heads=heads)
        lists: tuple[torch.Tensor | None, ...]
        if title == "FlashAttention-4":
            lists = blocks.to_fa4()[turned][:4]
        else:
            of = blocks.to_flex()
            lists = (of.kv_num_blocks, of.kv_indices, of.full_kv_num_blocks, of.full_kv_indices)
            if turned:
                lists = (of.q_num_blocks, of.q_indices, of.full_q_num_blocks, of.full_q_indices)
        found = _by_lists(lists, kept.mT if turned else kept)
        return found.mT if turned else found

    for title in ("FlexAttention", "FlashAttention-4"):
        for name, turned in (("keys of each row", False), ("queries of each column", True)):
            yield f"{title}'s blocks of {name}", partial(by_lists, title, turned)
    yield "slices", lambda: _by_slices(*to_attention_slices(mask, q_len, kv_len), (q_len, kv_len))

    def by_ranges() -> torch.Tensor:
        return _by_ranges(*to_flashmask(mask, q_len, kv_len, batch=batch, heads=heads), q_len)

    yield "FlashMask's ranges of queries", by_ranges
    yield (
        "cuDNN's ends of rows",
        lambda: to_cudnn(key_intervals(mask, every, None), batch, kv_len).to_dense(),
    )
    yield (
        "FlashInfer's blocks",
        lambda: (
            mask.blocks(q_len, kv_len, block=small, batch=batch, heads=heads)
            .to_flashinfer()
            .to_dense()
        ),
    )
    yield (
        "FlashInfer's blocks of any size",
        lambda: mask.to_flashinfer(q_len, kv_len, form="variable", heads=heads).to_dense(),  # type: ignore[call-arg]
    )
    yield (
        "FlashInfer's bits",
        lambda: mask.to_flashinfer(q_len, kv_len, form="bits", batch=batch).to_dense(  # type: ignore[call-arg]
            q_len, kv_len
        ),
    )

    def for_vllm(form: Literal["function", "ranges"]) -> torch.Tensor:
        if q_len != kv_len:
            raise MaskValueError(
                "vLLM takes masks of prompts, with as many queries as keys; this call has "
                f"{q_len} queries and {kv_len} keys."
            )
        return mask.to_vllm(q_len, form=form, batch=batch).to_dense()

    yield "vLLM's function with its hint", partial(for_vllm, "function")
    yield "vLLM's ranges", partial(for_vllm, "ranges")


def _by_lists(lists: Sequence[torch.Tensor | None], kept: torch.Tensor) -> torch.Tensor:
    """How often lists of blocks compute and keep each pair: counts and columns of masked blocks,
    then of full ones, for each row of blocks."""
    rows, columns = kept.shape[-2:]
    found = torch.zeros((), dtype=torch.int32)
    for place, holds in ((0, kept.int()), (2, torch.ones_like(kept, dtype=torch.int32))):
        count, column = lists[place : place + 2]
        assert count is not None and column is not None
        listed = torch.arange(column.shape[-1]) < count[..., None]
        times = torch.zeros((*count.shape, -(-columns // BLOCK)), dtype=torch.int32)
        times.scatter_add_(-1, column.long(), listed.int())
        pairs = times.repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)
        found = found + pairs[..., :rows, :columns] * holds
    return found


def _by_slices(
    queries: torch.Tensor, keys: torch.Tensor, kinds: torch.Tensor, lengths: tuple[int, int]
) -> torch.Tensor:
    """How often slices compute and keep each pair. Kind 0 keeps all pairs, 1 those up to the
    diagonal through the last corner, 2 those from the diagonal through the first corner on, 3 those
    between both."""
    found = torch.zeros(1, 1, *lengths, dtype=torch.int32)
    rows = torch.cat([queries, keys, kinds[:, None]], dim=1).tolist()
    for q0, q1, k0, k1, kind in rows:
        q, k = torch.arange(q0, q1)[:, None], torch.arange(k0, k1)
        kept = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool)
        if kind & 1:
            kept &= k - k1 <= q - q1
        if kind & 2:
            kept &= k - k0 >= q - q0
        found[0, 0, q0:q1, k0:k1] += kept
    return found


def _by_ranges(ends: torch.Tensor, causal: bool, q_len: int) -> torch.Tensor:
    """The kept pairs of ranges of hidden queries, in FlashMask's four forms."""
    q, k = torch.arange(q_len)[:, None], torch.arange(ends.shape[2])
    of = [part.unsqueeze(2) for part in ends.unbind(-1)]
    if len(of) == 1:
        hidden = q >= of[0]
    elif len(of) == 2:
        hidden = (q >= of[0]) & (q < of[1]) if causal else (q >= of[0]) | (q < of[1])
    else:
        hidden = ((q >= of[0]) & (q < of[1])) | ((q >= of[2]) & (q < of[3]))
    return ~hidden & (q >= k) if causal else ~hidden
