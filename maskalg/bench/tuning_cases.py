"""Cases that tiles are tuned on: for each kind of mask and score, one or two people train with."""

from __future__ import annotations

from typing import Final

import torch

from ..values.biases import alibi
from ..values.masks import causal, document, shared_prefix, sliding
from .cases import Case, Shape, documents, mask_of, rows

LENGTH: Final = 8192
_TAKEN: Final = (
    "full", "causal", "window", "document", "documents of 256", "documents of 5000",
    "document & window", "alibi", "softcap", "dense mask", "dense bias",
)  # fmt: skip


def tuning_cases(head_dim: int, device: str) -> dict[str, Case]:
    """The cases at a head dimension, by name; every pattern of `maskalg.tiles.forward` is
    among them, with a bias and without."""
    heads = max(4, 2048 // head_dim)
    shape = Shape(2, heads, heads, LENGTH, head_dim)
    known = rows(shape, device)
    slopes = torch.exp2(-8 * torch.arange(1, heads + 1, device=device) / heads)
    ids = document(documents(LENGTH, 1000, device))
    bias = alibi(slopes)
    starts = [0, *range(LENGTH // 4, LENGTH + 1, LENGTH // 8)]  # of a prompt and its answers
    rollouts = shared_prefix.from_cu_seqlens(starts, [-1] + [0] * (len(starts) - 2), device=device)
    return {name: known[name] for name in _TAKEN} | {
        "full + alibi": Case(shape, bias),
        "window + alibi": Case(shape, causal & sliding(1024) + bias),
        "document + alibi": Case(shape, causal & ids + bias),
        "documents of 5000 + alibi": Case(shape, mask_of(known["documents of 5000"]) + bias),
        "rollouts": Case(shape, rollouts),
        "rollouts + alibi": Case(shape, rollouts + bias),
        "document & window + alibi": Case(shape, causal & ids & sliding(1024) + bias),
    }
