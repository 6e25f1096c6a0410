"""The mask function of transformers: composed closures become formulas.

Transformers composes functions of single indices (`and_masks`, `or_masks`, windows, chunks, packed
sequences) and asks the attention implementation to make a mask of them. Here they are traced. The
functions are new in every step but alike, so they are traced once and then filled with the values
of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, TypeAlias

import torch
from transformers.masking_utils import causal_mask_function

from ...errors import MaskalgError, MaskTypeError, MaskValueError
from ...tracing import mask as traced
from ...tracing import traced_before
from ...tracing.messages import OPAQUE
from ...values.algebra import Mask, Score
from ...values.masks.padding import real_bounds
from .. import messages
from .model_mask import ModelMask, Written
from .packed import by_place

MaskFunction: TypeAlias = Callable[..., Any]
"""Of `(batch, head, q_idx, kv_idx)`."""

# What others need to write a mask out, or to leave one out.
_KNOWN: Final = frozenset(
    (
        *("allow_is_causal_skip", "allow_is_bidirectional_skip", "allow_torch_fix", "local_size"),
        *("dtype", "config", "use_vmap", "device"),
    )
)

NAME: Final = "maskalg"
"""The name of the attention; one with "flash", "sdpa" or "/" in it would be checked, or sought on a
hub."""

Own: TypeAlias = tuple[Mask | Score]

_CHANGED: Final = Lock()
_OWN: Final[dict[int, tuple[Own, ...]]] = {}
"""By identity of a model's configuration; the last one counts."""


@contextmanager
def use_mask(model: torch.nn.Module, mask: Mask | Score) -> Iterator[None]:
    """Use a mask of your own in all layers, also where `generate` calls the model.

    It replaces every mask that the model composes. Its positions count tokens of the row, padding
    and tokens of a cache included. Padding is dropped in any case. All threads see it, and so do
    models that were built from the same configuration object: copy the object for a second model.

    Args:
        model: a model of transformers with `attn_implementation="maskalg"`.
        mask: a mask, or `mask + bias`.

    Raises:
        TypeError: `mask` is neither.
        ValueError: a model with another attention; at a call, a cache that has dropped keys, as
            that of a layer with a window does.

    Examples:
        >>> with use_mask(model, causal & (sliding(256) | prefix(4))):
        ...     tokens = model.generate(ids, past_key_values=DynamicCache())
    """
    if not isinstance(mask, (Mask, Score)):
        raise MaskTypeError(
            "use_mask(model, mask): mask must be a mask or `mask + bias`, got "
            f"{type(mask).__name__}."
        )
    configs = _configs(model)
    config: Any = model.config
    used = str(config.get_text_config()._attn_implementation)
    if NAME not in used:
        raise messages.other_attention(used)
    own: Own = (mask,)
    with _CHANGED:
        for each in configs:
            _OWN[each] = (*_OWN.get(each, ()), own)
    try:
        yield
    finally:
        with _CHANGED:  # blocks of several threads may end in any order
            for each in configs:
                left = tuple([other for other in _OWN[each] if other is not own])
                if left:
                    _OWN[each] = left  # at once: other threads read without the lock
                else:
                    del _OWN[each]


def _configs(model: torch.nn.Module) -> dict[int, Any]:
    """The configurations of a model's text layers by identity, and copies of them that encoders and
    decoders may have. They are held, so that their identities stay theirs."""
    config: Any = model.config
    own = (config, config.get_text_config())
    kinds = tuple(map(type, own))
    parts = [getattr(module, "config", None) for module in model.modules()]
    return {id(each): each for each in (*own, *parts) if type(each) in kinds}


def own_mask(config: object) -> Mask | Score | None:
    """The mask that `use_mask` gave the model with this configuration."""
    found = _OWN.get(id(config))
    return found[-1][0] if found else None


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: torch.Tensor | ModelMask | None = None,
    **options: Any,
) -> ModelMask:
    """The mask of a forward pass, as `AttentionMaskInterface` asks for it.

    Args:
        batch_size: rows of the batch.
        q_length: queries of this pass.
        kv_length: keys of this pass, those of a cache included.
        q_offset: position of the first query; a 0-d tensor with a static cache.
        kv_offset: position of the first key; above 0 with a sliding cache.
        mask_function: of `(batch, head, q_idx, kv_idx)` at positions; causal where it is None.
        attention_mask: `[batch, positions]`, False at padding; positions past its end are padding.
            It must not be written to while the mask is used.
        options: arguments for masks that are written out: `device`, and `dtype`, floating or
            torch.bool.

    Raises:
        TypeError: a function no formula expresses, another dtype, or an option of a later
            transformers.
    """
    for name, value in options.items():
        if name not in _KNOWN and value is not None:
            raise MaskTypeError(
                f"transformers passes {name}={messages.short(value)} to the mask, and maskalg does "
                "not know what it means. Use a version of transformers that "
                "`maskalg[transformers]` names."
            )
    if isinstance(attention_mask, ModelMask):
        return attention_mask
    given = (mask_function, options.get("config"))
    try:
        built = _built(given, q_offset, kv_offset, kv_length, attention_mask)
    except MaskalgError as error:
        error.args = tuple([str(text).replace(f", {OPAQUE}", "") for text in error.args])
        raise
    shape = batch_size, 1, q_length, kv_length
    dtype = options.get("dtype") or torch.float32
    if not dtype.is_floating_point and dtype != torch.bool:
        raise messages.written_dtype(dtype)
    written = Written(dtype, options.get("device"))
    return ModelMask(built, shape, written)


# torch.compile does not look inside: it would have to trace what traces.
@torch.compiler.disable(  # type: ignore[untyped-decorator]
    reason="the masks of a model are made outside of graphs. With fullgraph=True write "
    "attention_mask=model_mask(mask, batch, q_len), and in torch.export strict=False."
)
def _built(
    given: tuple[Callable[..., Any] | None, object],
    q_offset: int | torch.Tensor,
    kv_offset: int,
    kv_length: int,
    attention_mask: torch.Tensor | None,
) -> Mask | Score:
    """The mask of a function, or the mask that `use_mask` gave in its place, moved to where queries
    and keys begin, and without padding."""
    function, config = given
    own = own_mask(config)
    if own is not None and kv_offset:
        raise MaskValueError(
            f"use_mask gave the model {own!r}, and the cache has dropped keys 0 to "
            f"{kv_offset - 1}, which the mask might keep. Use a cache without a window: "
            "model.generate(..., past_key_values=DynamicCache())."
        )
    kept = None
    if attention_mask is not None:
        kept = _padded(attention_mask, kv_length + kv_offset)
        # A copy, once: kernels would copy rows that lie apart in each layer.
        kept = kept[:, kv_offset:].contiguous() if kv_offset else kept
    if own is not None:
        return _composed(own, q_offset, kv_offset, kept)
    function = causal_mask_function if function is None else by_place(function)
    if type(q_offset) is not int or type(kv_offset) is not int:
        return _composed(traced(function), q_offset, kv_offset, kept)
    # Composed as one function, all of a step's mask is known if a step before was like it.
    whole = _shifted(function, q_offset, kv_offset) if q_offset or kv_offset else function
    whole = whole if kept is None else _real(whole, kept)
    known = traced_before(whole)
    if known is not None:
        return known
    mask = traced(function)  # errors are those of the model's own function
    if traced_before(function) is None:
        return _composed(mask, q_offset, kv_offset, kept)
    return traced(whole)


def _composed(
    mask: Mask | Score, q_offset: int | torch.Tensor, kv_offset: int, kept: torch.Tensor | None
) -> Mask | Score:
    """The mask moved and without padding, as an expression."""
    if isinstance(q_offset, torch.Tensor):
        # A static cache adds to its own tensor as the first layer writes its keys.
        q_offset = q_offset.clone()
    mask = mask.shift(q=q_offset, kv=kv_offset)
    return mask if kept is None else mask & traced(_real(_everything, kept))


def _shifted(function: MaskFunction, q_shift: int, kv_shift: int) -> MaskFunction:
    """The function at later positions; `Structure.moves` knows the names of the numbers."""

    def of_queries(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return function(b, h, q_idx + q_shift, kv_idx)

    def of_both(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return function(b, h, q_idx + q_shift, kv_idx + kv_shift)

    return of_both if kv_shift else of_queries


def _real(function: MaskFunction, padding_mask: torch.Tensor) -> MaskFunction:
    """The mask without padding, by bounds where real tokens lie together.

    Tiles between the bounds are FULL, and those before them EMPTY, without a look at the padding
    mask, which a step of decoding would wait for at each key. The bounds do not follow later writes
    to it.
    """
    first_real, past_real = real_bounds(padding_mask)

    def real(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        past = (past_real[b] > kv_idx) | padding_mask[b, kv_idx]
        return function(b, h, q_idx, kv_idx) & (kv_idx >= first_real[b]) & past

    return real


def _everything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> bool:
    return True


def _padded(attention_mask: torch.Tensor, length: int) -> torch.Tensor:
    """The padding mask at every position up to `length`."""
    if attention_mask.ndim != 2:
        raise messages.attention_mask_rank(tuple(attention_mask.shape))
    kept = attention_mask.to(torch.bool)
    missing = length - kept.shape[1]
    return torch.nn.functional.pad(kept, (0, missing)) if missing > 0 else kept
