"""`attention()`: the one call that computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, cast, overload

import torch

from . import errors
from .algebra import Expression, everything
from .backends.call import Call, Result
from .extents import Extents, check, fitting
from .normalform import Bound, bound
from .weights import Weight, softmax

BACKENDS = ("triton", "cpu", "reference")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@overload
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: Literal[False] = False,
    backend: str | None = None,
) -> torch.Tensor: ...


@overload
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: Literal[True],
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: bool = False,
    backend: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of `query` to `key` and `value` under a mask, a bias or both.

    Args:
        query: `[batch, heads, q_len, head_dim]`, float16, bfloat16 or float32 (float64 off GPUs).
        key: `[batch, kv_heads, kv_len, head_dim]`; `heads` is a multiple of `kv_heads`, and
            consecutive query heads share a key-value head.
        value: `[batch, kv_heads, kv_len, value_dim]`.
        score: a mask, a bias, or `mask + bias`; None keeps everything.
        scale: factor of q . k, by default `1 / sqrt(head_dim)`.
        weight: what turns scores into weights.
        return_lse: return `(out, lse)` with the natural-log sum of exp(score) of each query,
            float32 `[batch, heads, q_len]`, a sink not included; of softmax weights only.
        backend: "triton", "cpu" or "reference"; by default chosen by the device. A backend that
            cannot serve the call raises and never hands over to another.

    Returns:
        `[batch, heads, q_len, value_dim]` in the dtype of `query`. A query that keeps no key has
        output 0, lse -inf and gradients 0.

    Raises:
        TypeError, ValueError: inputs or an expression that do not fit together.
        RuntimeError: the backend cannot serve the call; the message names one that can.
    """
    expression = everything if score is None else score
    call = checked_call(query, key, value, expression, scale, return_lse, weight)
    out, lse = backend_of(backend_name(query.device, backend))(call)
    return (out, cast(torch.Tensor, lse)) if return_lse else out


def checked_call(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    expression: Expression,
    scale: float | None = None,
    return_lse: bool = False,
    weight: Weight = softmax,
) -> Call:
    """The arguments of `attention` as one checked value; raises what `attention` raises."""
    if not isinstance(expression, Expression):
        raise errors.not_a_score(expression)
    if weight is not softmax:
        _check_weight(weight, query, return_lse)
        expression = weight.applied(expression)
    form = bound(expression)
    extents = _checked_inputs(query, key, value)
    _check_tables(expression, form, extents, query.device)
    if scale is None:
        scale = 1.0 / math.sqrt(max(query.shape[-1], 1))
    return Call(query, key, value, form, extents, float(scale), return_lse, weight)


def backend_name(device: torch.device, name: str | None) -> str:
    """The backend that was asked for, or the one of the device."""
    if name is not None:
        if name not in BACKENDS:
            raise errors.unknown_backend(name, list(BACKENDS))
        return name
    by_device = {"cpu": "cpu", "cuda": "triton"}
    if device.type not in by_device:
        raise errors.no_backend_for(str(device))
    return by_device[device.type]


def backend_of(name: str) -> Callable[[Call], Result]:
    """The function of a backend; its module is imported when first used."""
    if name == "triton":
        from .backends import triton

        return triton.attend
    if name == "cpu":
        from .backends import cpu

        return cpu.attend
    from .backends import reference

    return reference.attend


def _checked_inputs(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Extents:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor):
            raise errors.not_a_tensor(name, tensor)
    extents = fitting(query.shape, key.shape, value.shape)
    dtype, device = query.dtype, query.device
    if dtype not in _DTYPES:
        raise errors.unsupported_dtype(dtype)
    if not dtype == key.dtype == value.dtype:
        raise errors.tensors_differ("dtype", f"{dtype}, {key.dtype}, {value.dtype}")
    if not device == key.device == value.device:
        raise errors.tensors_differ("device", f"{device}, {key.device}, {value.device}")
    return extents


def _check_weight(weight: object, query: torch.Tensor, return_lse: bool) -> None:
    if not isinstance(weight, Weight):
        raise errors.unsupported_weight(weight)
    if return_lse and weight.formula is not None:
        raise errors.no_lse_of(weight.name)
    sink = weight.sink
    if isinstance(sink, torch.Tensor):
        if sink.shape[0] != query.shape[1]:
            raise errors.tensor_shape(weight.name, "sink", list(sink.shape), f"[{query.shape[1]}]")
        if sink.device != query.device:
            raise errors.wrong_device("sink", sink.device, query.device)


def _check_tables(
    expression: Expression, form: Bound, extents: Extents, device: torch.device
) -> None:
    """Check bound tensors against the call; an expression remembers the last call it fits."""
    if not form.structure.tables or expression.__dict__.get("_fits") == (extents, device):
        return
    for slot, tensor in form.tensors():
        if tensor.device != device:
            raise errors.wrong_device(slot.name, tensor.device, device)
    check(form, extents)
    expression.__dict__["_fits"] = (extents, device)
