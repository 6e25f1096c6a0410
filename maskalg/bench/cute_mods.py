"""The cases' masks and scores as FlashAttention-4 takes them: functions compiled by its CuTe.

Imported only where it is installed. Positions are vectors of one or two entries, those of masks
always of one. FlashAttention-4 finds the kernel of a function by its text and captured values.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cutlass
import cutlass.cute as cute
import torch
from flash_attn.cute.utils import scalar_to_ssa

from .cases import Case

Mod = Callable[..., Any]


@cute.jit
def causal(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    return q_idx >= kv_idx


@cute.jit
def window(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 1024)


@cute.jit
def sinks(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    return (q_idx >= kv_idx) & ((q_idx - kv_idx < 1024) | (kv_idx < 4))


@cute.jit
def document(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    first = scalar_to_ssa(aux_tensors[0][q_idx[0]], cutlass.Int32)
    return (q_idx >= kv_idx) & (kv_idx >= first)


@cute.jit
def document_window(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    first = scalar_to_ssa(aux_tensors[0][q_idx[0]], cutlass.Int32)
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 1024) & (kv_idx >= first)


def prefix_of(keys: int) -> Any:
    """Keys up to the query's, and the first `keys`."""

    @cute.jit
    def prefix(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
        return (q_idx >= kv_idx) | (kv_idx < keys)

    return prefix


def alibi_of(heads: int) -> Any:
    """ALiBi with its geometric slopes, computed: faster than loading them."""
    step = -8.0 / heads

    @cute.jit
    def alibi(score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
        slope = cute.math.exp2((head + 1).to(cutlass.Float32) * step)
        return score + slope * (kv_idx - q_idx).to(cutlass.Float32)

    return alibi


@cute.jit
def added(gradient, score, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """The gradient of a score to which something was added."""
    return gradient


def first_keys(ids: torch.Tensor) -> torch.Tensor:
    """The first key of each query's document, and zeros.

    The last tile of queries reads past the end, by less than a tile.
    """
    return torch.nn.functional.pad(torch.searchsorted(ids, ids), (0, 192)).to(torch.int32)


def mask_mod(name: str, case: Case) -> tuple[Mod, list[torch.Tensor] | None]:
    """A mask by its name, and the tensors it reads."""
    if name == "prefix":
        return prefix_of(case.shape.length // 4), None
    tensors = None if case.ids is None else [first_keys(case.ids)]
    return _MASKS[name], tensors


def score_mod(name: str, case: Case) -> tuple[Mod, Mod]:
    """A score by its name, and the function that takes its gradient back."""
    return _SCORES[name](case.shape.heads), added


_MASKS: Final = {
    "causal": causal,
    "window": window,
    "sinks": sinks,
    "document": document,
    "document & window": document_window,
}
_SCORES: Final = {"alibi": alibi_of}
