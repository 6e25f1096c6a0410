"""`attn_implementation="paged|maskalg"`: attention of transformers' continuous batching.

A step packs the tokens of many requests into one row. Their keys lie in blocks of a pool, which
transformers describes by one row of the pool for each key. They are read in place: blocks, where
the rows of a request fill them one after another, single rows where a layer has a window and its
rows form a ring. But a chunk of a prompt overwrites keys in the ring that its first queries need.
There the keys are copied out in order, as transformers does it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import torch

from ...attention import attention
from ...engine.pages import Pages
from ...errors import MaskTypeError, MaskValueError
from ...schedule.memory import captured
from ...values.algebra import Mask
from ...values.masks import causal, document, sliding
from ...values.masks.documents.document import packed_ids
from .. import messages
from .attend import capped, check_layer, weight_of
from .masks import own_mask

if TYPE_CHECKING:
    from transformers.generation.continuous_batching import PagedAttentionCache

_OF_BATCHING: Final = ("logits_indices", "logits_processor_args", "block_table")
_WHOLE: Final = 1  # the window that the cache notes for layers that have none


@dataclass(frozen=True)
class Packed:
    """A step as transformers describes it.

    Attributes:
        queries: cumulative lengths of the requests' tokens, int32 `[requests + 1]`.
        keys: the same of their keys, those of this step included; by kind of layer where a model
            has several.
        most_queries: the most tokens of a request.
        most_keys: the most keys of a request; by kind of layer as `keys`.
        read: for each group of layers the row in the pool of each key, int64 `[keys]`; empty where
            all requests begin in this step.
        write: for each group the rows into which the step's keys go, int64 `[tokens]`.
    """

    queries: torch.Tensor
    keys: torch.Tensor | dict[str, torch.Tensor]
    most_queries: int
    most_keys: int | dict[str, int]
    read: list[torch.Tensor]
    write: list[torch.Tensor]

    def of(self, kind: str) -> tuple[torch.Tensor, int]:
        """Cumulative lengths and the most keys of a request, in layers of a kind."""
        keys = self.keys[kind] if isinstance(self.keys, dict) else self.keys
        most = self.most_keys[kind] if isinstance(self.most_keys, dict) else self.most_keys
        return keys, most


@dataclass(frozen=True)
class _Group:
    """Mask and pages that the layers of a group share in a step.

    Attributes:
        mask: in positions of each request, or of the packed tokens where there are no pages.
        pages: where the keys lie; None where all requests begin, so that keys are the step's own.
        in_place: whether they lie in the pool; else in the rows that its `update` copies out.
    """

    mask: Mask
    pages: Pages | None = None
    in_place: bool = False


@dataclass(frozen=True)
class _Step:
    """Masks and pages of a step.

    Attributes:
        read: the list that this step's layers are given, by which it is known again.
        captured: whether it was made while a CUDA graph was captured, which then computes it.
        groups: those of the layers met so far.
    """

    read: list[torch.Tensor]
    captured: bool
    groups: dict[int, _Group] = field(default_factory=dict)


_STEPS: Final[WeakKeyDictionary[object, _Step]] = WeakKeyDictionary()


def attend_continuous(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    cache: PagedAttentionCache | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | dict[str, torch.Tensor] | None = None,
    max_seqlen_q: int = 1,
    max_seqlen_k: int | dict[str, int] = 1,
    read_index: list[torch.Tensor] | None = None,
    write_index: list[torch.Tensor] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a layer in a step of continuous batching; writes its keys into the cache.

    Args:
        module: the layer; its `layer_idx` and `training` are read.
        query: `[1, heads, tokens, head_dim]`, tokens of the requests one behind another.
        key: `[1, kv_heads, tokens, head_dim]`.
        value: `[1, kv_heads, tokens, head_dim]`.
        attention_mask: None; the mask follows from the lengths and the window of the layer.
        dropout: of the attention weights; refused in training.
        scaling: factor of q . k, by default `1 / sqrt(head_dim)`.
        softcap: bound of the scores.
        s_aux: `[heads]`, logits of the sinks.
        cache: the pool of keys and values; it knows the windows of the layers.
        cu_seq_lens_q: see `Packed`, as all that follow.
        cu_seq_lens_k: cumulative lengths of keys.
        max_seqlen_q: the most tokens of a request.
        max_seqlen_k: the most keys of a request.
        read_index: rows of the keys.
        write_index: rows for the keys of this step.
        options: others; refused unless they are known to change nothing.

    Returns:
        `[1, tokens, heads, head_dim]`, and None for the weights, which are not written out.
    """
    for name in _OF_BATCHING:
        options.pop(name, None)
    check_layer(module, dropout, options)
    if cache is None or cu_seq_lens_q is None or cu_seq_lens_k is None:
        raise MaskValueError(
            'attn_implementation="paged|maskalg" was called without the cache of continuous '
            'batching. Call model.generate_batch(prompts), or select "maskalg" for other calls: '
            'model.set_attn_implementation("maskalg").'
        )
    if attention_mask is not None:
        raise MaskTypeError(
            f"continuous batching was given attention_mask={messages.short(attention_mask)}, and "
            "makes its masks from the requests' lengths and the layers' windows. Leave "
            "attention_mask out."
        )
    own = own_mask(getattr(module, "config", None))
    if own is not None:
        raise MaskValueError(
            f"use_mask gave the model {own!r}, and continuous batching cuts prompts into chunks "
            "and drops keys by the model's own windows. Call model.generate, or ma.attention(..., "
            "pages=ma.Pages(table, lengths)) in a loop of your own."
        )
    assert read_index is not None and write_index is not None
    packed = Packed(
        cu_seq_lens_q, cu_seq_lens_k, max_seqlen_q, max_seqlen_k, read_index, write_index
    )
    layer = cast(int, module.layer_idx)
    found = _group(cache, packed, layer)
    if found.in_place:
        group, place = cache.layer_index_to_group_indices[layer]
        pools = (cache.key_cache[place], cache.value_cache[place])
        for pool, rows in zip(pools, (key, value), strict=True):
            pool.index_copy_(0, write_index[group], rows[0].transpose(0, 1))
        key, value = (pool.unflatten(0, (-1, _rows(cache, layer))) for pool in pools)
    else:
        rows = cache.update(key, value, layer, read_index=read_index, write_index=write_index)
        if found.pages is not None:
            key, value = (each.unsqueeze(1) for each in rows)
    out = attention(
        query,
        key,
        value,
        capped(found.mask, softcap),
        scale=scaling,
        weight=weight_of(s_aux),
        pages=found.pages,
    )
    return out.transpose(1, 2).contiguous(), None


def _group(cache: PagedAttentionCache, packed: Packed, layer: int) -> _Group:
    """Mask and pages of a layer, made once for a step and the layers of its group."""
    if torch.compiler.is_compiling():
        return _made(cache, packed, layer)
    recorded = captured(packed.queries.device)
    step = _STEPS.get(cache)
    if step is None or step.read is not packed.read or step.captured != recorded:
        step = _STEPS[cache] = _Step(packed.read, recorded)
    number = cache.layer_index_to_group_indices[layer][0]
    if number not in step.groups:
        step.groups[number] = _made(cache, packed, layer)
    return step.groups[number]


def _made(cache: PagedAttentionCache, packed: Packed, layer: int) -> _Group:
    number, window = cache.layer_index_to_group_indices[layer][0], cache.sliding_windows[layer]
    whole = window == _WHOLE
    mask = causal if whole else causal & sliding(window)
    rows, write = packed.read[number], packed.write[number]
    if not rows.shape[0]:
        ids = packed_ids(packed.queries, write.shape[0])
        return _Group(mask & document(ids, order="ascending"))
    keys, most = packed.of("full_attention" if whole else "sliding_attention")
    starts, lengths, size = keys[:-1], keys.diff(), _rows(cache, layer)
    first = torch.arange(0, most, size, device=keys.device, dtype=keys.dtype)
    table = (starts[:, None] + first).clamp(max=rows.shape[0] - 1)
    in_place = whole or packed.most_queries == 1
    if in_place:
        if not whole:  # the key of this step has no row yet
            rows = rows.masked_scatter(rows == cache.sentinel_index, write)
        table = rows[table] // size
    pages = Pages(table.to(torch.int32), lengths, packed.queries, packed.most_queries)
    return _Group(mask.shift(q=lengths - packed.queries.diff()), pages, in_place)


def _rows(cache: PagedAttentionCache, layer: int) -> int:
    """Rows of the pool that surely lie one behind another."""
    return int(cache.block_size) if cache.sliding_windows[layer] == _WHOLE else 1
