"""The operators under `torch.func`: `grad`, and `vmap`.

An operator with an autograd rule cannot serve `torch.func.grad`. There the operators are called by
autograd functions, whose rules for vmap follow from the operators'.

Under `torch.func.vmap` the new dimension joins the batch. Where the expression reads the batch, or
has a tensor of its own for each member, members are computed one after the other. If there is no
member, one on the meta device gives the shapes of the empty results.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import torch

from .. import errors
from ..engine.keys import structure_of
from .define import BACKWARD, FLOAT8_FORWARD, FORWARD, PAGES_FORWARD, gradients_of, remember
from .inputs import no_forward_mode


def forward(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention_forward`, with its list of tensors spread out for autograd to see them."""
    query, key, value, tables, *rest = args
    found = _Forward.apply(len(tables), query, key, value, *tables, *rest)  # type: ignore[no-untyped-call]
    return cast("tuple[torch.Tensor, torch.Tensor]", found)


def _backward(*args: Any) -> tuple[torch.Tensor, ...]:
    query, key, value, tables, *rest = args
    found = _Backward.apply(len(tables), query, key, value, *tables, *rest)  # type: ignore[no-untyped-call]
    return cast("tuple[torch.Tensor, ...]", found)


class _Forward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(tables: int, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.ops.maskalg.attention_forward(*_gathered(tables, args))
        return cast("tuple[torch.Tensor, torch.Tensor]", found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.tables = inputs[0]
        remember(ctx, tuple(_gathered(inputs[0], inputs[1:])), output)

    @staticmethod
    def backward(
        ctx: Any, grad_out: torch.Tensor | None, grad_lse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        wanted = list(ctx.needs_input_grad[4 : 4 + ctx.tables])
        inputs, of_tables = gradients_of(ctx, wanted, (grad_out, grad_lse), _backward)
        return (None, *inputs, *of_tables, *[None] * len(ctx.rest))

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> NoReturn:
        raise no_forward_mode()


class _Backward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(tables: int, *args: Any) -> tuple[torch.Tensor, ...]:
        return tuple(torch.ops.maskalg.attention_backward(*_gathered(tables, args)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *change: torch.Tensor | None) -> None:
        raise errors.no_double_backward()

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> NoReturn:
        raise no_forward_mode()


def _gathered(tables: int, args: tuple[Any, ...]) -> list[Any]:
    query, key, value, *rest = args
    return [query, key, value, rest[:tables], *rest[tables:]]


def _forward(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    structure, lse_wanted = args[4], args[9]
    operator = torch.ops.maskalg.attention_forward
    apart = _batched(in_dims[3]) or structure_of(structure).depends_on("batch")
    if apart or not info.batch_size:
        return _one_by_one(operator, info.batch_size, in_dims, args)
    inputs = [_folded(args[i], in_dims[i], info.batch_size) for i in range(3)]
    out, lse = operator(*inputs, *args[3:])
    if lse_wanted:
        lse = _unfolded(lse, info.batch_size)
    return (_unfolded(out, info.batch_size), lse), (0, 0 if lse_wanted else None)


def _backward_each(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    structure, wanted = args[8], args[13]
    operator = torch.ops.maskalg.attention_backward
    apart = _batched(in_dims[3]) or structure_of(structure).depends_on("batch")
    if apart or any(wanted) or not info.batch_size:
        return _one_by_one(operator, info.batch_size, in_dims, args)
    tensors = [
        args[i] if i == 3 or args[i] is None else _folded(args[i], in_dims[i], info.batch_size)
        for i in range(8)
    ]
    found = operator(*tensors, *args[8:])
    return [_unfolded(gradient, info.batch_size) for gradient in found], [0] * len(found)


def _float8(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    operator = torch.ops.maskalg.attention_float8
    return _one_by_one(operator, info.batch_size, in_dims, args)


def _one_by_one(
    operator: Any, members: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, Any]:
    def member(arg: Any, dim: Any, i: int) -> Any:
        if isinstance(arg, (list, tuple)):
            dims = dim if isinstance(dim, (list, tuple)) else [dim] * len(arg)
            return [member(part, d, i) for part, d in zip(arg, dims, strict=True)]
        if not members and isinstance(arg, torch.Tensor):
            shape = [size for d, size in enumerate(arg.shape) if d != dim]
            return arg.new_empty(shape, device="meta")
        return arg if dim is None else arg.select(dim, i)

    results = [operator(*member(args, in_dims, i)) for i in range(max(members, 1))]
    stacked = [torch.stack(parts) for parts in zip(*results, strict=True)]
    if not members:
        device = next(arg.device for arg in args if isinstance(arg, torch.Tensor))
        stacked = [torch.empty_like(part[:0], device=device) for part in stacked]
    return type(results[0])(stacked), type(results[0])([0] * len(stacked))


def _pages(*_given: Any) -> NoReturn:
    raise errors.BackendError(
        "torch.func.vmap over attention with pages=… is not built: its requests are a batch "
        "already. Give each member rows of its own in ma.Pages(table, lengths)."
    )


def _batched(dims: list[int | None]) -> bool:
    return any(dim is not None for dim in dims)


def _folded(tensor: torch.Tensor, dim: int | None, members: int) -> torch.Tensor:
    """`[members, batch, …]` as `[members * batch, …]`; a tensor that members share is repeated."""
    whole = tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return whole.flatten(0, 1)


def _unfolded(tensor: torch.Tensor, members: int) -> torch.Tensor:
    return tensor.view(members, tensor.shape[0] // members, *tensor.shape[1:])


torch.library.register_vmap(FORWARD, _forward)
torch.library.register_vmap(BACKWARD, _backward_each)
torch.library.register_vmap(FLOAT8_FORWARD, _float8)
torch.library.register_vmap(PAGES_FORWARD, _pages)
