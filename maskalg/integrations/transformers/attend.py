"""The attention function of transformers: `ma.attention` with the score terms a model asks for."""

from __future__ import annotations

from typing import Any

import torch

from ...attention import attention
from ...errors import MaskTypeError, MaskValueError
from ...formula.expression import Expression
from ...values.algebra import Bias, Mask, Score
from ...values.biases import dense_bias
from ...values.biases import softcap as softcap_bias
from .. import messages
from ..written import from_tensor
from .continuous import attend_continuous
from .layers import capped, check_layer, weight_of
from .model_mask import ModelMask, note_leaking_documents


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: ModelMask | torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a layer, as `AttentionInterface` asks for it.

    Args:
        module: the layer; its `training` and `is_causal` are read.
        query: `[batch, heads, q_len, head_dim]`.
        key: `[batch, kv_heads, kv_len, head_dim]`.
        value: `[batch, kv_heads, kv_len, value_dim]`.
        attention_mask: what `make_mask` built; or a tensor `[batch, heads or 1, q_len, kv_len]`,
            Boolean or added to the scores; or None for everything.
        dropout: of the attention weights; refused in training.
        scaling: factor of q . k, by default `1 / sqrt(head_dim)`.
        is_causal: whether the layer is causal, where `module.is_causal` does not say.
        softcap: bound of the scores, before any bias.
        s_aux: `[heads]`, logits of the sinks.
        position_bias: `[batch or 1, heads, q_len, kv_len]`, added to the scores; receives a
            gradient.
        cu_seq_lens_q: cumulative lengths of documents packed into one row, beside a mask that
            `make_mask` built.
        cu_seq_lens_k: the same for keys.
        options: others; refused unless they are known to change nothing.

    Returns:
        `[batch, q_len, heads, value_dim]`, and None for the weights, which are not written out.
        A query that keeps no key, such as padding, has output 0.
    """
    if options.get("read_index") is not None:
        return attend_continuous(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout,
            scaling,
            softcap,
            s_aux,
            cu_seq_lens_q=cu_seq_lens_q,
            cu_seq_lens_k=cu_seq_lens_k,
            position_bias=position_bias,
            **options,
        )
    check_layer(module, dropout, options)
    score: Mask | Score | Bias | None
    if isinstance(attention_mask, ModelMask):
        attention_mask = attention_mask.for_queries(query.shape[2])
        _check_shape(attention_mask, query, key.shape[2])
        score = attention_mask.score
        if cu_seq_lens_q is not None:
            keys = cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
            score = attention_mask.within(cu_seq_lens_q, keys)
        elif getattr(module, "layer_idx", None) == 0:
            note_leaking_documents(attention_mask, options.get("position_ids"))
    elif cu_seq_lens_q is not None:
        raise MaskValueError(
            "cu_seq_lens_q is given beside no mask, or one that is written out. Leave the "
            "attention mask to the model, or put the documents into it."
        )
    elif isinstance(attention_mask, Expression):
        raise MaskTypeError(
            f"attention_mask is {attention_mask!r}, and a model takes a mask with its lengths. "
            "Write attention_mask=model_mask(mask, batch, q_len)."
        )
    elif attention_mask is not None:
        if attention_mask.ndim != 4:
            raise messages.attention_mask_rank(tuple(attention_mask.shape))
        score = from_tensor(attention_mask[..., : key.shape[2]])
    else:
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        if causal and query.shape[2] > 1:
            raise MaskValueError(
                "a causal layer was called with attention_mask=None for more than one query, which "
                "eager attention reads as `everything` and SDPA as `causal`. Call the layer "
                "through its model, or pass attention_mask=model_mask(ma.causal, batch, q_len)."
            )
        score = None
    if position_bias is None:
        score = capped(score, softcap)
    else:
        bias = _bias(softcap, position_bias)
        score = bias if score is None else score + bias
    out = attention(query, key, value, score, scale=scaling, weight=weight_of(s_aux))
    return out.transpose(1, 2).contiguous(), None


def _check_shape(mask: ModelMask, query: torch.Tensor, kv_len: int) -> None:
    batch, _, q_len, _ = query.shape
    if mask.shape[0] not in (1, batch) or mask.shape[2:] != (q_len, kv_len):
        raise MaskValueError(
            f"the mask was built for {list(mask.shape)} [batch, 1, q_len, kv_len], and attention "
            f"is called with batch {batch}, q_len {q_len}, kv_len {kv_len}. Pass "
            f"model_mask(mask, {batch}, {q_len}, {kv_len}). A model that adds keys of its own to "
            'those of its mask needs attn_implementation="eager".'
        )


def _bias(softcap: float | None, position_bias: torch.Tensor) -> Bias:
    """The bias of a model's scores: its soft-cap, then its position bias."""
    added = dense_bias(position_bias.contiguous())
    return added if softcap is None else added @ softcap_bias(softcap)
