"""The peers: FlexAttention, cuDNN and FlashAttention-2 of torch, and others if installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from ..attention import attention
from ..engine.normal_form import bound
from .cases import Case, Contender, Mod, Run, mask_of
from .cudnn import cudnn_flex_attention
from .flash_attention_4 import flash_attention_4

INTERVALS: Final = "FlexAttention intervals"


def inputs_of(case: Case, dtype: torch.dtype, *, gradients: bool) -> tuple[torch.Tensor, ...]:
    """Query, key and value on the GPU, from a fixed seed."""
    shape = case.shape
    torch.manual_seed(0)
    return tuple(
        torch.randn(
            shape.batch, heads, shape.length, dim, device="cuda", dtype=dtype
        ).requires_grad_(gradients)
        for heads, dim in (
            (shape.heads, shape.dim),
            (shape.kv_heads, shape.dim),
            (shape.kv_heads, shape.of_values),
        )
    )


def contenders(
    case: Case, inputs: tuple[torch.Tensor, ...], peers: Sequence[str] = ()
) -> dict[str, Callable[[], Contender]]:
    """Functions that make the contenders of a case, by name: ours, then `peers`, or all."""
    q, k, v = inputs

    def shared(make: Callable[[], Run]) -> Callable[[], Contender]:
        return lambda: Contender(make(), inputs)

    found = {
        "maskalg": shared(lambda: partial(attention, q, k, v, case.expression)),
        "FlexAttention": shared(partial(_flex, case, case.mask_mod, q, k, v)),
    }
    if case.ids is not None:  # as a mask_mod it looks up ids of documents at both indices
        found[INTERVALS] = shared(lambda: _flex(case, _intervals(case), q, k, v))
    if case.sdpa_causal is not None:
        from torch.nn.attention import SDPBackend

        cudnn, flash = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
        found["cuDNN"] = shared(partial(_sdpa, case, cudnn, q, k, v))
        found["FlashAttention-2"] = shared(partial(_sdpa, case, flash, q, k, v))
    found |= cudnn_flex_attention(case, inputs) | flash_attention_4(case, inputs)
    return {name: make for name, make in found.items() if name in ("maskalg", *(peers or found))}


def _intervals(case: Case) -> Mod:
    """The mask of a case as a few intervals of keys for each query."""
    return mask_of(case).to_mask_mod(case.shape.length, form="intervals")


def _flex(
    case: Case, mask_mod: Mod | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Run:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    # Compiles each case afresh: after eight compilations FlexAttention would compute densely.
    torch._dynamo.reset()
    block_mask = None
    if mask_mod is not None:
        make = torch.compile(create_block_mask)
        structure = bound(mask_of(case)).structure
        batch, heads = (
            size if structure.depends_on(index) else None
            for index, size in zip(("batch", "head"), q.shape[:2], strict=True)
        )
        block_mask = make(mask_mod, batch, heads, q.shape[2], k.shape[2], str(q.device))
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
