"""One checked call of `attention`, the argument of every backend."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch

from .. import errors
from ..engine.extents import Extents
from ..engine.float8 import Descales, out_dtype
from ..engine.normal_form import Bound
from ..engine.pages import Pages
from ..formula.watched import holds_gradients, holds_members
from ..values.weights import Weight, softmax
from .results import row_steps

SMALLEST_SCALE: Final = 2.0**-64
"""The smallest scale that kernels divide biases by; below it every score counts as zero."""


class Call(NamedTuple):
    """The checked inputs of a call.

    Attributes:
        query: `[batch, heads, q_len, head_dim]`.
        key: `[batch, kv_heads, kv_len, head_dim]`; query head h reads head h // (heads / kv_heads).
        value: `[batch, kv_heads, kv_len, value_dim]`.
        form: the expression: its structure and the values bound to it.
        extents: the lengths, the batch and the query heads.
        scale: factor of q . k.
        return_lse: whether to return the natural log of the sum of exp(score), too.
        weight: the weight function. If it has a formula, the bias of `form` ends with it: its value
            is the weight.
        descales: factors of float8 inputs, or None.
        pages: the tables of pages, or None. With pages, keys and values are `[pages, kv_heads,
            page_size, dim]`, queries may be packed into one batch entry, and the expression drops
            keys and queries that a request does not have.
        aligned: whether tiles begin where documents begin, for backends that say so.
        part: whether the output for the gradients comes from more keys than these.
        alone: whether a batch entry must have the bits that it has without the others.
        nan_safe: whether NaN and infinities must be confined to kept pairs, for backends in which
            they would spread.
        alike: a memory of the caller, or None. Calls with the same one have the same fields but for
            inputs, rooms and the tensor of a sink; those, like all other tensors of the call, have
            the same shapes, strides, dtypes and places modulo 16 bytes, and the expression's
            tensors are unchanged.
        rooms: tensors for the output, dQ, dK and dV; () or None without them. A backend may write
            its results to them, and then returns them. Gradients are taken from an output in the
            first. Strides are those of `empty_result`, or, with one batch entry, those of a slice
            of its tokens.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    form: Bound
    extents: Extents
    scale: float
    return_lse: bool
    weight: Weight = softmax
    descales: Descales | None = None
    pages: Pages | None = None
    aligned: bool = False
    part: bool = False
    alone: bool = False
    nan_safe: bool = False
    alike: dict[Hashable, Any] | None = None
    rooms: tuple[torch.Tensor | None, ...] = ()

    @property
    def out_dtype(self) -> torch.dtype:
        """The dtype of the output: the query's, or bfloat16 for float8."""
        return out_dtype(self.query.dtype)

    @property
    def others(self) -> tuple[Any, ...]:
        """All fields but the inputs, in order: autograd need not save these."""
        return self[3:]

    def with_inputs(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Call:
        """This call with other inputs of the same kind."""
        return Call(query, key, value, *self.others)

    def room(self, number: int) -> torch.Tensor | None:
        """One of the rooms."""
        return self.rooms[number] if self.rooms else None

    def row_steps(self, number: int) -> tuple[int, int]:
        """Steps in rows from head to head and token to token, for output, dQ, dK or dV."""
        room = self.room(number)
        if room is None:
            return row_steps(self.query if number < 2 else self.key)
        _, head, token, _ = room.stride()
        return head // room.shape[3], token // room.shape[3]

    @property
    def watched(self) -> list[torch.Tensor]:
        """The tables to save, so that autograd reports a write to one before the backward pass.

        Without tensors of inference mode, which autograd cannot save.
        """
        return [table for table in self.form.tables if not table.is_inference()]

    @property
    def page_size(self) -> int:
        """Rows of a page, 0 without pages."""
        return 0 if self.pages is None else self.key.shape[2]

    @property
    def packed(self) -> bool:
        """Whether the queries of several requests are packed into one batch entry."""
        return self.pages is not None and self.pages.cu_seqlens_q is not None

    @property
    def group(self) -> int:
        """How many query heads share one key-value head."""
        return self.query.shape[1] // max(self.key.shape[1], 1)

    def differentiable(self) -> bool:
        """Whether autograd needs a gradient of an input or of a bound tensor."""
        if not torch.is_grad_enabled():
            return False
        # Written out for speed, like everything that a cached call runs.
        if self.query.requires_grad or self.key.requires_grad or self.value.requires_grad:
            return True
        for value in (self.weight.sink, *self.form.values):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return True
        return False


Result = tuple[torch.Tensor, torch.Tensor | None]


def by_kernels(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The `backward` of an autograd function whose gradients are computed by kernels.

    It refuses gradients that kernels do not differentiate: to differentiate twice, or batched.
    Compiled autograd calls it and does not trace it, as Dynamo would trace the launch of a kernel.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *change: torch.Tensor | None) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(checked)(ctx, *change)
        if torch.is_grad_enabled():
            raise errors.no_double_backward()
        for each in change:
            if each is not None and (holds_members(each) or holds_gradients(each)):
                raise errors.no_batched_gradients()
        return backward(ctx, *change)

    return checked


Compute = Callable[[Call, bool], Result]
"""Output and, if wanted, lse, without a record; as `Backend.compute`."""

Differentiate = Callable[..., Sequence[torch.Tensor | None]]
"""Gradients of query, key, value, sink and tables of a call: of `call, saved, change, tables` as
for `Backend.differentiate`, of the sink if it is a tensor that wants one, and whether `inputs` want
gradients."""


def recorded(
    call: Call, sink: torch.Tensor | None, compute: Compute, differentiate: Differentiate
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse by kernels, as one operation that autograd differentiates.

    Args:
        call: the inputs.
        sink: a tensor of sink logits that `compute` uses, None without one.
        compute: the forward pass.
        differentiate: the backward pass.
    """
    learned = {slot.index: t for slot, t in call.form.tensors() if t.requires_grad}
    inputs = (call.query, call.key, call.value, sink, *learned.values())
    found: tuple[torch.Tensor, torch.Tensor] = _Recorded.apply(  # type: ignore[no-untyped-call]
        compute, differentiate, call, tuple(learned), *inputs
    )
    return found


class _Recorded(torch.autograd.Function):
    """Forward and backward kernels as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Compute,
        differentiate: Differentiate,
        call: Call,
        slots: tuple[int, ...],
        *inputs: torch.Tensor | None,
    ) -> Result:
        out, lse = compute(call, True)
        ctx.save_for_backward(*inputs[:4], out, lse, *call.watched)
        # The inputs are saved as autograd wants them saved, and put back in backward.
        ctx.slots, ctx.differentiate = slots, differentiate
        # `alike` says nothing of the gradient of the output, which may have any strides.
        ctx.others = call._replace(alike=None).others
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @by_kernels
    def backward(
        ctx: Any, grad_out: torch.Tensor | None, grad_lse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        query, key, value, sink, out, lse, *_ = ctx.saved_tensors
        call = Call(query, key, value, *ctx.others)
        change = (torch.zeros_like(out) if grad_out is None else grad_out, grad_lse)
        wanted = ctx.needs_input_grad
        sink = sink if wanted[7] else None
        found = ctx.differentiate(
            call, (out, lse), change, ctx.slots, sink, inputs=any(wanted[4:7])
        )
        return None, None, None, None, *found


def scale_of(query: torch.Tensor, scale: float | None) -> float:
    """The requested factor of q . k, or `1 / sqrt(head_dim)`."""
    return 1.0 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float(scale)


def positively_scaled(call: Call) -> tuple[Call, float]:
    """The call with a positive scale, and the factor by which its queries were multiplied.

    Kernels divide added biases by the scale, so a negative or tiny scale goes into the queries.
    """
    if call.scale >= SMALLEST_SCALE:
        return call, 1.0
    if call.scale <= -SMALLEST_SCALE:
        return call._replace(query=-call.query, scale=-call.scale), -1.0
    return call._replace(query=call.query * call.scale, scale=1.0), call.scale
