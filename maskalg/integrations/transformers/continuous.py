"""Continuous batching of transformers: attention of a step that packs tokens of many requests.

Keys of the requests lie in blocks of a pool, which transformers describes by one row of the pool
for each key. They are read in place: blocks, where the rows of a request fill them one after
another, single rows where a layer has a window and its rows form a ring. But a chunk of a prompt
overwrites keys in the ring that its first queries need, and some models compute keys and values
from cached states, as DeepSeek does from latent ones. There the keys are copied out in order, as
transformers does it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch

from ...attention import attention
from ...engine.memory import captured
from ...engine.pages import Pages
from ...errors import MaskValueError
from ...values.algebra import Mask
from ...values.masks import causal, document, sliding
from ...values.masks.documents.document import packed_ids
from .layers import capped, check_layer, weight_of
from .masks import own_mask

if TYPE_CHECKING:
    from transformers.generation.continuous_batching import PagedAttentionCache

_OF_BATCHING: Final = ("logits_indices", "logits_processor_args", "block_table")


@dataclass(frozen=True)
class Packed:
    """A step as transformers describes it to the layers of one kind.

    Attributes:
        queries: cumulative lengths of the requests' tokens, int32 `[requests + 1]`.
        keys: the same of their keys, those of this step included.
        most_queries: the most tokens of a request.
        most_keys: the most keys of a request.
        read: the row in the pool of each key, int64 `[keys]`; empty where all requests begin in
            this step.
        write: the rows into which the step's keys go, int64 `[tokens]`.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    most_queries: int
    most_keys: int
    read: torch.Tensor
    write: torch.Tensor


class Handed(NamedTuple):
    """Keys and values that a cache hands to a layer.

    Attributes:
        key: `[1, kv_heads, keys, head_dim]`.
        value: `[1, kv_heads, keys, head_dim]`.
        in_place: True for the keys of this step alone, which are not yet in the pool, where
            attention reads the earlier ones; False for the keys of all requests, one request
            after another.
    """

    key: torch.Tensor
    value: torch.Tensor
    in_place: bool


@dataclass(frozen=True)
class _Group:
    """Mask and pages that the layers of one kind share in a step.

    Attributes:
        mask: in positions of each request, or of the packed tokens where there are no pages.
        pages: where the keys lie; None where all requests begin, so that keys are the step's own.
    """

    mask: Mask
    pages: Pages | None = None


@dataclass(frozen=True)
class _Step:
    """Masks and pages of a step.

    Attributes:
        read: the list that this step's layers are given, by which it is known again.
        captured: whether it was made while a CUDA graph was captured, which then computes it.
        groups: those of the layers met so far, by kind and whether keys are read in place.
    """

    read: list[torch.Tensor]
    captured: bool
    groups: dict[tuple[int, bool], _Group] = field(default_factory=dict)


_STEPS: Final[WeakKeyDictionary[object, _Step]] = WeakKeyDictionary()


def attend_continuous(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    cache: PagedAttentionCache | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | dict[str, torch.Tensor] | None = None,
    max_length_q: int = 1,
    max_length_k: dict[str, int] | None = None,
    read_index: list[torch.Tensor] | None = None,
    write_index: list[torch.Tensor] | None = None,
    handed: Handed | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a layer in a step of continuous batching; writes its keys into the cache.

    Args:
        module: the layer; its `layer_idx` and `training` are read.
        query: `[1, heads, tokens, head_dim]`, tokens of the requests one behind another.
        key: `[1, kv_heads, tokens, head_dim]`.
        value: `[1, kv_heads, tokens, head_dim]`.
        attention_mask: not read: the mask follows from the lengths and the window of the layer.
            Transformers up to 5.23 writes it out for attention that is not its own.
        dropout: of the attention weights; refused in training.
        scaling: factor of q . k, by default `1 / sqrt(head_dim)`.
        softcap: bound of the scores.
        s_aux: `[heads]`, logits of the sinks.
        cache: the pool of keys and values; it knows the windows of the layers.
        cu_seq_lens_q: cumulative lengths of the requests' tokens, int32 `[requests + 1]`.
        cu_seq_lens_k: the same of their keys, by kind of layer.
        max_length_q: the most tokens of a request.
        max_length_k: the most keys of a request, by kind of layer.
        read_index: rows of the keys, for each kind of layer.
        write_index: rows for the keys of this step, likewise.
        handed: what the cache gave the model; None before transformers 5.24, whose models leave
            their cache to this function.
        options: others; refused unless they are known to change nothing.

    Returns:
        `[1, tokens, heads, head_dim]`, and None for the weights, which are not written out.
    """
    for name in _OF_BATCHING:
        options.pop(name, None)
    check_layer(module, dropout, options)
    own = own_mask(getattr(module, "config", None))
    if own is not None:
        raise MaskValueError(
            f"use_mask gave the model {own!r}, and continuous batching cuts prompts into chunks "
            "and drops keys by the model's own windows. Call model.generate, or ma.attention(..., "
            "pages=ma.Pages(table, lengths)) in a loop of your own."
        )
    if cache is None or not isinstance(cu_seq_lens_k, dict):
        raise MaskValueError(
            "a layer in continuous batching was called without its cache. "
            "`maskalg[transformers]` names the versions of transformers that were tested."
        )
    assert cu_seq_lens_q is not None and max_length_k is not None
    assert read_index is not None and write_index is not None
    layer = cast(int, module.layer_idx)
    of = cache.layer_to_allocator[layer]
    kind, number = of.layer_type, of.index
    packed = Packed(
        cu_seq_lens_q,
        cu_seq_lens_k[kind],
        max_length_q,
        max_length_k[kind],
        read_index[number],
        write_index[number],
    )
    if handed is None:
        places = packed.read, packed.write, max_length_q
        handed = hand_over(of, layer, key, value, *places, unchanged=True)
        key, value = handed.key, handed.value
    _note(of, layer, key is handed.key and value is handed.value, handed.in_place)
    found = _group(cache, of, packed, read_index, handed.in_place)
    if handed.in_place:
        pools = of._kv_token_views[layer]
        for pool, states in zip(pools, (key, value), strict=True):
            pool.index_copy_(0, packed.write, states[0].transpose(0, 1))
        # The values of a layer begin behind its keys, so that they have fewer rows up to the end.
        pages = [pool.unflatten(0, (-1, _rows(of))) for pool in pools]
        key, value = (each[: pages[1].shape[0]] for each in pages)
    elif found.pages is not None:
        key, value = (each[0].transpose(0, 1).unsqueeze(1) for each in (key, value))
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


def hand_over(
    of: Any,
    layer: int,
    key: torch.Tensor,
    value: torch.Tensor,
    read: torch.Tensor,
    write: torch.Tensor,
    most_queries: int,
    *,
    unchanged: bool | None = None,
) -> Handed:
    """Keys and values that a layer gets: the step's own, or copies of those of all its requests.

    Keys are copied in order, after the step's keys are written into the pool. They are not copied
    if attention gets the step's own tensors and reads the pool, unless a window's ring is
    overwritten.

    Args:
        of: the cache's allocator for layers of this kind.
        layer: its number.
        key: `[1, kv_heads, tokens, head_dim]`, of this step.
        value: `[1, kv_heads, tokens, head_dim]`.
        read: the row in the pool of each key.
        write: the rows into which the step's keys go.
        most_queries: the most tokens of a request.
        unchanged: whether attention gets the tensors that the cache handed to the layer; by
            default, whether it did in earlier steps.
    """
    if unchanged is None:
        unchanged = _unchanged(of).get(layer, False)
    begins = not read.shape[0]
    ring = _window(of) is not None and most_queries > 1
    if unchanged and not begins and not ring:
        return Handed(key, value, True)
    rows = (each[0].transpose(0, 1) for each in (key, value))
    key, value = (each.transpose(0, 1)[None] for each in of.update(*rows, layer, read, write))
    return Handed(key, value, False)


def _unchanged(of: Any) -> dict[int, bool]:
    """Which layers compute with what their cache hands over; those not met are missing."""
    found: dict[int, bool] = getattr(of, "unchanged", {})
    return found


def _note(of: Any, layer: int, unchanged: bool, in_place: bool) -> None:
    """Remember whether a layer computes with what its cache handed over."""
    if in_place and not unchanged:
        raise MaskValueError(
            "a layer changed its keys or values behind its cache, which it had not done in the "
            'step before. Use attn_implementation="sdpa" for this model.'
        )
    if _unchanged(of).get(layer) is not unchanged:
        of.unchanged = {**_unchanged(of), layer: unchanged}


def _group(
    cache: PagedAttentionCache, of: Any, packed: Packed, read: list[torch.Tensor], in_place: bool
) -> _Group:
    """Mask and pages of a layer, made once for a step and the layers of a kind."""
    if torch.compiler.is_compiling():
        return _made(of, packed, in_place)
    recorded = captured(packed.queries.device)
    step = _STEPS.get(cache)
    if step is None or step.read is not read or step.captured != recorded:
        step = _STEPS[cache] = _Step(read, recorded)
    key = of.index, in_place
    if key not in step.groups:
        step.groups[key] = _made(of, packed, in_place)
    return step.groups[key]


def _made(of: Any, packed: Packed, in_place: bool) -> _Group:
    window = _window(of)
    mask = causal if window is None else causal & sliding(window)
    rows, write = packed.read, packed.write
    if not rows.shape[0]:
        ids = packed_ids(packed.queries, write.shape[0])
        return _Group(mask & document(ids, order="ascending"))
    starts, lengths = packed.keys[:-1], packed.keys.diff()
    size = _rows(of) if in_place else 1
    first = torch.arange(0, packed.most_keys, size, device=starts.device, dtype=starts.dtype)
    table = (starts[:, None] + first).clamp(max=rows.shape[0] - 1)
    if in_place:
        if window is not None:  # the key of this step has no row yet
            rows = rows.masked_scatter(rows == of.sentinel_index, write)
        table = rows[table] // size
    pages = Pages(table.to(torch.int32), lengths, packed.queries, packed.most_queries)
    return _Group(mask.shift(q=lengths - packed.queries.diff()), pages)


def _window(of: Any) -> int | None:
    """The window of the layers of a kind, None without one."""
    return getattr(of, "sliding_window", None)


def _rows(of: Any) -> int:
    """Rows of the pool that surely lie one behind another."""
    return int(of.tokens_per_page) if _window(of) is None else 1
