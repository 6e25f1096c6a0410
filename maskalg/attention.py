"""`attention()`: the one call that computes."""

from __future__ import annotations

from typing import Final, Literal, NoReturn, cast, overload

import torch
from torch.autograd import forward_ad

from . import errors
from .backends.call import Call, scale_of
from .backends.choice import TRAITS, backend_name, backend_of
from .backends.float8 import attend_float8
from .backends.pages import attend_pages
from .engine.float8 import FLOAT8, descales_of
from .engine.normal_form import bound
from .engine.pages import Pages
from .formula.expression import Expression
from .formula.watched import PLAIN
from .operators.alike import facts_of, recalled, remembered
from .operators.attend import Wanted, attend_traced
from .operators.inputs import (
    as_autocast_wants,
    check_tables,
    check_weight,
    checked_scale,
    extents_of,
    no_tangents,
    note_past_keys,
    note_rounded,
    note_turned,
)
from .values.algebra import everything
from .values.weights import Weight, softmax

ARGUMENTS: Final = (
    *("query", "key", "value", "score"),
    *("scale", "weight", "return_lse", "dropout_p", "descale", "pages", "nan_safe", "backend"),
)


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
    dropout_p: float = 0.0,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
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
    dropout_p: float = 0.0,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]: ...


@overload
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: bool,
    dropout_p: float = 0.0,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
    backend: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]: ...


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Expression | None = None,
    *more: NoReturn,
    scale: float | None = None,
    weight: Weight = softmax,
    return_lse: bool = False,
    dropout_p: float = 0.0,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
    backend: str | None = None,
    **named: NoReturn,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of `query` to `key` and `value` under a mask, a bias or both.

    Args:
        query: `[batch, heads, q_len, head_dim]`, float16, bfloat16, float32, float64 (not
            by the fused GPU kernels), or float8_e4m3fn, for inference.
        key: `[batch, kv_heads, kv_len, head_dim]`; `heads` is a multiple of `kv_heads`, and
            consecutive query heads share a key-value head.
        value: `[batch, kv_heads, kv_len, value_dim]`.
        score: a mask, a bias, or `mask + bias`; None keeps everything.
        scale: factor of q . k, a finite number, by default `1 / sqrt(head_dim)`. To learn it,
            multiply the query by a parameter.
        weight: the weight function, which turns scores into weights.
        return_lse: return `(out, lse)`, for softmax weights only. lse is the natural log of the
            sum of exp(score) of each query, without a sink, float32 (float64 for float64 inputs)
            `[batch, heads, q_len]`.
        dropout_p: 0; anything else is refused, as dropout of the weights is not built.
        descale: factors of float8 query, key and value, or of 8-bit pages: three positive float32
            tensors, `[batch, heads]` and twice `[batch, kv_heads]`, where either size may be 1,
            or `[1]`; None means factors of 1. `to_float8` makes them.
        pages: where the keys and values of each request lie, if `key` and `value` are pages,
            `[pages, page_size, kv_heads, dim]` with any strides: see `Pages`. They may be int8
            or float8_e4m3fn beside a query of a wider dtype. For inference.
        nan_safe: on a GPU, True confines the effect of NaN and infinities to pairs that the mask
            keeps; otherwise they may reach other queries and keys of a tile. A query that keeps a
            key or value which is not finite is NaN in all dimensions. It costs a copy of keys and
            values, and in the backward pass also of queries and outputs. Other backends ignore it:
            keys and values that no query keeps have no effect there.
        backend: "triton", "cpu", "reference" or "aligned" (the same bits however documents are
            packed); by default chosen by the device. A backend that cannot serve the call raises;
            no other takes its place.

    Returns:
        `[batch, heads, q_len, value_dim]` in the dtype of `query`, or bfloat16 for float8. A query
        that keeps no key has output 0, lse -inf and gradients 0. The output has the memory layout
        of the query, and gradients have those of query and key, so transposed projections
        `[batch, length, heads, dim]` are never copied.

    Raises:
        TypeError, ValueError: inputs or an expression that do not fit together; more arguments,
            or arguments by the names that other functions have for them, such as `is_causal`.
        RuntimeError: the backend cannot serve the call; the message names one that can.

    Examples:
        >>> q, k, v = (torch.randn(1, 8, 128, 64) for _ in range(3))
        >>> attention(q, k, v, causal & sliding(32) + softcap(30)).shape
        torch.Size([1, 8, 128, 64])
        >>> out, lse = attention(q, k[:, :2], v[:, :2], causal, return_lse=True)  # grouped heads
        >>> lse.shape
        torch.Size([1, 8, 128])
    """
    if more or named:
        raise errors.other_arguments(more, named, ARGUMENTS)
    if dropout_p != 0:
        raise errors.no_dropout(dropout_p)
    expression = everything if score is None else score
    if not isinstance(query, torch.Tensor):
        raise errors.not_a_tensor("query", query)
    device = query.device.type
    if device == "meta":
        raise errors.BackendError(
            "attention: tensors on device 'meta' have shapes and no values to compute with. Make "
            "query, key and value on 'cpu' or 'cuda', or use FakeTensorMode for shapes."
        )
    chosen = backend_name(device, backend)
    if torch.is_autocast_enabled(device):
        query, key, value = as_autocast_wants(query, key, value)
    if traced(query, chosen):
        wanted = Wanted(checked_scale(scale), return_lse, weight, descale, chosen, pages, nan_safe)
        out, lse = attend_traced(query, key, value, expression, wanted)
    else:
        try:
            facts, inputs = None, (query, key, value)
            if pages is None and descale is None and not TRAITS[chosen].of_torch:
                facts = facts_of(inputs, expression, weight, (scale, return_lse, nan_safe))
            call = recalled(facts, expression, inputs, weight)
            if call is None:
                options = (scale, return_lse, weight, descale, pages, nan_safe)
                checked = checked_call(query, key, value, expression, *options)
                call = remembered(facts, expression, checked)
            if forward_ad._current_level >= 0 and not TRAITS[chosen].of_torch:
                no_tangents((query, key, value, call.weight.sink, *call.form.values))
            if pages is not None:
                out, lse = attend_pages(call, chosen)
            elif call.query.dtype == FLOAT8:
                out, lse = attend_float8(call, chosen)
            else:
                out, lse = backend_of(chosen).attend(call)
        except RecursionError:
            raise errors.nested_too_deeply("attention") from None
    return (out, cast(torch.Tensor, lse)) if return_lse else out


def traced(query: torch.Tensor, backend: str) -> bool:
    """Whether a tracer or a mode watches the call, and must see one operator instead of its parts.

    Such are torch.compile and torch.export, torch.jit.trace, the transforms of torch.func, dispatch
    modes (fake tensors, selective checkpointing, counters) and tensors of other classes. Plain
    calls skip the operator, which costs tens of microseconds. The reference backend shows its
    differentiable operations instead, except to torch.compile and torch.jit.trace, which do not
    follow the search for a structure.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return True
    if TRAITS[backend].of_torch:
        return False
    # `watched`, written out, since every call passes here.
    return (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or type(query) not in PLAIN
    )


def checked_call(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    expression: Expression,
    scale: float | None = None,
    return_lse: bool = False,
    weight: Weight = softmax,
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
) -> Call:
    """The arguments of `attention` as one checked value; raises what `attention` raises."""
    if not isinstance(expression, Expression):
        raise errors.not_a_score(expression)
    if weight is not softmax:
        check_weight(weight, query, return_lse)
        expression = weight.applied(expression)
    extents = extents_of(query, key, value, pages)
    # Kernels read memory, where negated views such as `x.conj().imag` hold the other sign.
    query, key, value = query.resolve_neg(), key.resolve_neg(), value.resolve_neg()
    if pages is not None:
        expression = pages.within(expression)
        key, value = key.transpose(1, 2), value.transpose(1, 2)
    form = bound(expression)
    if form.structure.moves is not None and not return_lse:
        note_past_keys(form, extents)
    # An expression remembers the last call it fits.
    if form.structure.tables:
        shapes = [table.shape for table in form.tables]
        fits = (extents, query.device, query.dtype, shapes)
        if expression.__dict__.get("_fits") != fits:
            check_tables(form, extents, query.device, pages)
            note_turned(form, extents)
            note_rounded(form, query.dtype)
            expression.__dict__["_fits"] = fits
    descales = None
    if descale is not None:
        alike = (query, key, value) if pages is None else pages.alike(query, key, value)
        descales = descales_of(descale, *alike)
    factor = scale_of(query, checked_scale(scale))
    return Call(
        *(query, key, value, form, extents, factor, return_lse, weight, descales, pages),
        nan_safe=nan_safe,
    )
