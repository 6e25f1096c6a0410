"""`model.set_attention_backend("maskalg")` in Hugging Face diffusers.

    import maskalg.integrations.diffusers
    model.set_attention_backend("maskalg")
    model(..., joint_attention_kwargs={"attention_mask": maskalg.sliding_tile(...)})

Importing this module registers the backend, for the functions that go through
`dispatch_attention_fn`. The registry is private to diffusers; if a release has changed it, an error
names the missing part.

Source: `diffusers.models.attention_dispatch` of diffusers 0.42.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from ..attention import attention
from ..errors import BackendError, MaskTypeError
from ..formula.expression import Expression
from ..values.masks import causal
from . import messages
from .written import from_tensor

try:
    import diffusers
except ImportError as missing:
    raise messages.integration_needs("diffusers", "0.42", missing) from missing

NAME: Final = "maskalg"


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Expression | torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    mask_expr: Expression | None = None,
    _parallel_config: object | None = None,
) -> torch.Tensor:
    """Attention as diffusers dispatches it.

    Args:
        query: `[batch, q_len, heads, head_dim]`.
        key: `[batch, kv_len, kv_heads, head_dim]`.
        value: `[batch, kv_len, kv_heads, value_dim]`.
        attn_mask: an expression; or a tensor, Boolean or added to the scores, `[batch, kv_len]`
            or what broadcasts to `[batch, heads, q_len, kv_len]`.
        dropout_p: 0; anything else is refused.
        is_causal: True stands for the mask `causal`.
        scale: factor of q . k, by default `1 / sqrt(head_dim)`.
        enable_gqa: ignored; heads are grouped if `kv_heads` is smaller than `heads`.
        mask_expr: an expression, passed as `attention_kwargs={"mask_expr": …}`.
        _parallel_config: None; context parallelism is refused.

    Returns:
        `[batch, q_len, heads, value_dim]`.
    """
    if _parallel_config is not None:
        raise BackendError(
            "context parallelism is not built for maskalg in diffusers. Leave parallel_config out, "
            "or choose another attention backend."
        )
    if isinstance(attn_mask, torch.Tensor) and attn_mask.shape == (query.shape[0], key.shape[1]):
        attn_mask = attn_mask[:, None, None, :]
    score = _expression(attn_mask, is_causal, mask_expr)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    return attention(q, k, v, score, scale=scale, dropout_p=dropout_p).transpose(1, 2)


def _expression(
    attn_mask: Expression | torch.Tensor | None, is_causal: bool, mask_expr: Expression | None
) -> Expression | None:
    """The mask, given by one of the three arguments; None if none was given."""
    given = [
        mask for mask in (attn_mask, causal if is_causal else None, mask_expr) if mask is not None
    ]
    if len(given) > 1:
        raise MaskTypeError(
            "mask_expr and attn_mask or is_causal are both given. Compose them: `mask_expr & "
            "ma.dense(attn_mask)`, `mask_expr & ma.causal`."
        )
    if not given:
        return None
    (mask,) = given
    if isinstance(mask, torch.Tensor):
        return from_tensor(mask)
    if not isinstance(mask, Expression):
        raise MaskTypeError(
            f"mask_expr must be a mask, a bias or `mask + bias`, got {type(mask).__name__}."
        )
    return mask


def register() -> None:
    """Register "maskalg"; importing the module has done so."""
    dispatch = _part(diffusers.models, "attention_dispatch")
    registry = _part(dispatch, "_AttentionBackendRegistry")
    _part(registry, "register")(_member(_part(dispatch, "AttentionBackendName")))(attend)


def _part(owner: Any, name: str) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        path = f"{getattr(owner, '__name__', owner)}.{name}"
        raise messages.registry_changed("diffusers", diffusers.__version__, path)
    return found


def _member(names: Any) -> Any:
    """The name as a member of the enumeration by which diffusers finds its backends."""
    known = _part(names, "_value2member_map_")
    if NAME not in known:
        member = str.__new__(names, NAME)
        member._name_, member._value_ = NAME.upper(), NAME
        _part(names, "_member_map_")[member._name_] = known[NAME] = member
        _part(names, "_member_names_").append(member._name_)
    return known[NAME]


register()

__all__ = ["attend", "register"]
