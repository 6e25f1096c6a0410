"""What the gradients need of each query: its lse, or the sum of its weights, and dO . O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from maskalg_kernels.backward import row_products

from .call import Call
from .triton_launch import Launch, variant_key

_PRODUCT_ROWS: Final = 64


@dataclass(frozen=True)
class Rows:
    """What the backward kernels know of each query, float32 `[batch, heads, q_len]`, contiguous.

    Attributes:
        statistic: lse with the sink, or for weights that have a formula 1 / z.
        delta: what is subtracted from dO . v.
        product: dO . O.
    """

    statistic: torch.Tensor
    delta: torch.Tensor
    product: torch.Tensor


def row_statistics(
    call: Call,
    shape: dict[str, Any],
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    sinks: torch.Tensor | None,
) -> Rows:
    """What the kernels know of each query.

    Args:
        saved: output and lse of the forward pass (the sum of weights that have a formula).
        change: gradients of the output and, where it was returned, of the lse.
        sinks: `[heads]`, or None.
    """
    (out, lse), (grad_out, grad_lse) = saved, change
    if call.weight.formula is not None and not call.weight.normalised:
        none = torch.zeros_like(lse)
        return Rows(torch.ones_like(lse), none, none)
    product = _row_products(out, grad_out, shape)
    if call.weight.formula is not None:
        return Rows(torch.where(lse == 0, 0.0, 1 / lse), product, product)
    statistic, delta = lse, product
    if sinks is not None:
        # A query that keeps nothing stays at -inf, whatever the sink.
        with_sink = torch.logaddexp(lse, sinks.float()[:, None])
        statistic = torch.where(lse == float("-inf"), lse, with_sink)
    if grad_lse is not None:
        # d lse / d s is exp(s - lse), which is the weight times exp(statistic - lse).
        grown = grad_lse if sinks is None else grad_lse * torch.exp(statistic - lse).nan_to_num_()
        delta = product - grown
    return Rows(statistic, delta, product)


def sink_gradient(rows: Rows, sinks: torch.Tensor) -> torch.Tensor:
    """Of the logits `[heads]`: minus the weight of the sink times dO . O, over all queries."""
    share = torch.exp(sinks.float()[:, None] - rows.statistic)
    # Where nothing is kept the output is 0 whatever the sink, and so is the product.
    change = torch.where(rows.statistic == float("-inf"), 0.0, share * rows.product)
    return -change.sum(dim=(0, 2)).to(sinks.dtype)


def _row_products(out: torch.Tensor, grad_out: torch.Tensor, shape: dict[str, Any]) -> torch.Tensor:
    """dO . O of each query, float32 `[batch, heads, q_len]`."""
    batch, heads, q_len, _ = out.shape
    product = out.new_empty(batch, heads, q_len, dtype=torch.float32)
    if product.numel():
        arguments: list[Any] = [out, grad_out, product, q_len, heads, *grad_out.stride()]
        constants = {name: shape[name] for name in ("VALUE_DIM", "VALUE_PAD")}
        constants["ROWS"] = _PRODUCT_ROWS
        specialised = variant_key(
            (out, grad_out, product), (heads, *grad_out.stride()), (batch * heads * q_len,)
        )
        Launch(
            row_products,
            (-(-q_len // _PRODUCT_ROWS), batch * heads),
            ("row products", *constants.values(), out.device, specialised),
            lambda: (arguments, constants),
            lambda: arguments,
        ).run()
    return product
