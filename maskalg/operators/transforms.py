"""The operators under `torch.func.grad`, which an operator with an autograd rule cannot serve.

There they are called by autograd functions, whose rules for vmap follow from the operators'.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import torch

from .. import errors
from . import messages
from .define import gradients_of, remember


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
        raise messages.no_forward_mode()


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
        raise messages.no_forward_mode()


def _gathered(tables: int, args: tuple[Any, ...]) -> list[Any]:
    query, key, value, *rest = args
    return [query, key, value, rest[:tables], *rest[tables:]]
