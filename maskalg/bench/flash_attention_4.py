"""FlashAttention-4 as a contender: with built-in masks, and with masks written as functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

import torch

from .cases import Case, Contender, heads_inside, mask_of, why_absent

BUILT_IN: Final = "FlashAttention-4"
DETERMINISTIC: Final = "FlashAttention-4 deterministic"
WITH_MASK_MOD: Final = "FlashAttention-4 mask_mod"
Call = Callable[..., Any]


@dataclass(frozen=True)
class Spelling:
    """A case as FlashAttention-4 takes it.

    Attributes:
        fixed: arguments that give the mask; None if no arguments do.
        mask: the name of the mask in `cute_mods`; None if it has none there.
        packed: whether `fixed` holds within each document, for `flash_attn_varlen_func`.
        score: the name of the score in `cute_mods`, for `fixed` and for `mask`.
        options: further arguments, for `fixed` and for `mask`.
    """

    fixed: dict[str, Any] | None
    mask: str | None = None
    packed: bool = False
    score: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


_CAUSAL: Final = {"causal": True}
_WINDOW: Final = {"causal": True, "window_size": (1023, 0)}
_WIDE_WINDOW: Final = {"causal": True, "window_size": (4095, 0)}
SPELLINGS: Final = {
    "full": Spelling({}),
    "causal": Spelling(_CAUSAL, "causal"),
    "window": Spelling(_WINDOW, "window"),
    "window of 4096": Spelling(_WIDE_WINDOW),
    "document": Spelling(_CAUSAL, "document", packed=True),
    "document & window": Spelling(_WINDOW, "document & window", packed=True),
    "documents of 256": Spelling(_CAUSAL, "document", packed=True),
    "documents of 5000": Spelling(_CAUSAL, "document", packed=True),
    "log-normal documents": Spelling(_CAUSAL, "document", packed=True),
    "prefix": Spelling(None, "prefix"),
    "sinks": Spelling(None, "sinks"),
    "alibi": Spelling(_CAUSAL, "causal", score="alibi"),
    "softcap": Spelling(_CAUSAL, "causal", options={"softcap": 30.0}),
    "window & softcap": Spelling(_WIDE_WINDOW, options={"softcap": 50.0}),
}


@cache
def missing() -> str | None:
    """Why FlashAttention-4 does not run here, None where it does."""
    return why_absent("flash_attn.cute.interface", "flash-attn-4[cu13]")


def flash_attention_4(
    case: Case, inputs: tuple[torch.Tensor, ...]
) -> dict[str, Callable[[], Contender]]:
    """Its contenders in a case; none if it does not run here.

    For gradients there is one more, whose gradients have the same bits in every run, as ours do.
    """
    spelling = SPELLINGS.get(case.row)
    if spelling is None or missing() is not None:
        return {}
    device = inputs[0].device
    calls: dict[str, Callable[..., Call]] = {}
    if spelling.fixed is not None:
        calls[BUILT_IN] = call = packed if spelling.packed else dense
        if any(t.requires_grad for t in inputs):
            calls[DETERMINISTIC] = partial(call, deterministic=True)
    if spelling.mask is not None:
        calls[WITH_MASK_MOD] = sparse
    return {
        name: partial(_contender, partial(call, case, spelling, device), inputs, flat)
        for name, call in calls.items()
        for flat in (spelling.packed and name != WITH_MASK_MOD,)
    }


def tiles(dim: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The blocks of its forward and backward lists on Hopper, those that its programs compute."""
    return ((192, 128), (128, 128)) if dim <= 64 else ((128, 128), (64, 128))


def dense(case: Case, spelling: Spelling, _: torch.device, **further: Any) -> Call:
    """Its function with the mask given by arguments."""
    flash_attn_func = importlib.import_module("flash_attn.cute").flash_attn_func
    return partial(flash_attn_func, **(spelling.fixed or {}), **_scored(case, spelling), **further)


def packed(case: Case, spelling: Spelling, device: torch.device, **further: Any) -> Call:
    """Its function with each document as a sequence, and the mask within it given by arguments."""
    assert case.ids is not None
    lengths = case.ids.unique_consecutive(return_counts=True)[1].repeat(case.shape.batch)
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32)
    longest = int(lengths.max())
    return partial(
        importlib.import_module("flash_attn.cute").flash_attn_varlen_func,
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        **(spelling.fixed or {}),
        **_scored(case, spelling),
        **further,
    )


def sparse(case: Case, spelling: Spelling, device: torch.device) -> Call:
    """Its function with the mask as a function, and our lists of the blocks that it touches."""
    library = importlib.import_module("flash_attn.cute")
    blocks_of = importlib.import_module("flash_attn.cute.block_sparsity").BlockSparseTensorsTorch
    mods = importlib.import_module(".cute_mods", __package__)
    mask_mod, aux_tensors = mods.mask_mod(spelling.mask, case)
    mask, length = mask_of(case), case.shape.length
    forward, backward = (
        blocks_of(**mask.blocks(length, block=block).to_fa4(device=device)[i]._asdict())
        for i, block in enumerate(tiles(case.shape.dim))
    )
    return partial(
        library.flash_attn_func,
        mask_mod=mask_mod,
        aux_tensors=aux_tensors,
        block_sparse_tensors=forward,
        block_sparse_tensors_bwd=backward,
        **_scored(case, spelling),
    )


def _scored(case: Case, spelling: Spelling) -> dict[str, Any]:
    if spelling.score is None:
        return spelling.options
    mods = importlib.import_module(".cute_mods", __package__)
    score_mod, score_mod_bwd = mods.score_mod(spelling.score, case)
    return {"score_mod": score_mod, "score_mod_bwd": score_mod_bwd, **spelling.options}


def _contender(
    make: Callable[[], Call], inputs: tuple[torch.Tensor, ...], packed: bool
) -> Contender:
    """A contender with inputs of its own, in its layout: heads after positions in memory."""
    call = make()
    own = heads_inside(inputs)
    batch, _, length, _ = own[0].shape

    def run() -> torch.Tensor:
        given = [t.transpose(1, 2) for t in own]
        result = call(*(t.flatten(0, 1) for t in given) if packed else given)
        out: torch.Tensor = result[0] if isinstance(result, tuple) else result
        return (out.unflatten(0, (batch, length)) if packed else out).transpose(1, 2)

    return Contender(run, own)
