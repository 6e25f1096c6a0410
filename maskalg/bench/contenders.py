"""The peers: FlexAttention, cuDNN and FlashAttention-2 of torch, FlashAttention-4 if installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F

from ..attention import attention
from .cases import Case

Run = Callable[[], torch.Tensor]


def inputs_of(case: Case, dtype: torch.dtype, *, gradients: bool) -> tuple[torch.Tensor, ...]:
    """Query, key and value on the GPU, from a fixed seed."""
    shape = case.shape
    torch.manual_seed(0)
    return tuple(
        torch.randn(
            shape.batch, heads, shape.length, shape.dim, device="cuda", dtype=dtype
        ).requires_grad_(gradients)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )


def contenders(case: Case, inputs: tuple[torch.Tensor, ...]) -> dict[str, Run]:
    """By name, what computes the output of the case; ours is first."""
    q, k, v = inputs
    found: dict[str, Run] = {
        "maskalg": lambda: attention(q, k, v, case.expression),
        "FlexAttention": _flex(case, q, k, v),
    }
    if case.sdpa_causal is not None:
        from torch.nn.attention import SDPBackend

        found["cuDNN"] = _sdpa(case, SDPBackend.CUDNN_ATTENTION, q, k, v)
        found["FlashAttention-2"] = _sdpa(case, SDPBackend.FLASH_ATTENTION, q, k, v)
    flash = _flash_attention_4()
    if flash is not None and case.fixed is not None:
        fixed = case.fixed
        layout = [t.transpose(1, 2) for t in (q, k, v)]
        found["FlashAttention-4"] = lambda: flash(*layout, **fixed).transpose(1, 2)
    return found


def backward_of(run: Run, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """The backward pass of a contender, from a fixed gradient of its output."""
    out = run()
    torch.manual_seed(1)
    gradient = torch.randn(out.shape, device=out.device).to(out.dtype)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def _flex(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Run:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # A new compilation for each case: FlexAttention would turn dense after eight of them.
    torch._dynamo.reset()
    block_mask = None
    if case.mask_mod is not None:
        make = torch.compile(create_block_mask)
        block_mask = make(case.mask_mod, None, None, q.shape[2], k.shape[2], str(q.device))
    flex = torch.compile(flex_attention, dynamic=False)
    grouped = q.shape[1] != k.shape[1]
    return lambda: flex(q, k, v, case.score_mod, block_mask, enable_gqa=grouped)


def _sdpa(case: Case, backend: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Run:
    from torch.nn.attention import sdpa_kernel

    def run() -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=bool(case.sdpa_causal), enable_gqa=q.shape[1] != k.shape[1]
            )

    return run


def _flash_attention_4() -> Callable[..., torch.Tensor] | None:
    try:
        flash_attn_func = importlib.import_module("flash_attn.cute").flash_attn_func
    except (ImportError, AttributeError):
        return None

    def run(*arguments: Any, **options: Any) -> torch.Tensor:
        result = flash_attn_func(*arguments, **options)
        return cast(torch.Tensor, result[0] if isinstance(result, tuple) else result)

    return run
