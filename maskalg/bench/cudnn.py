"""cuDNN's `flex_attention` as a contender: masks written as intervals of keys for each query."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial
from typing import Final

import torch

from ..values.algebra import Mask
from .cases import Case, Contender, heads_inside, why_absent

NAME: Final = "cuDNN flex_attention"
_MOST_ENDPOINTS: Final = 129  # of one query; the kernel goes through all of them for each block


@cache
def missing() -> str | None:
    """Why it does not run here, None where it does."""
    return why_absent("cudnn.flex_attention", "nvidia-cudnn-frontend>=1.32")


def cudnn_flex_attention(
    case: Case, inputs: tuple[torch.Tensor, ...]
) -> dict[str, Callable[[], Contender]]:
    """Its contender in a case; none if it does not run here, or if the case has a bias."""
    if not isinstance(case.expression, Mask) or missing() is not None:
        return {}
    return {NAME: partial(_contender, case, case.expression, inputs)}


def _contender(case: Case, mask: Mask, inputs: tuple[torch.Tensor, ...]) -> Contender:
    """A contender with inputs of its own, in its layout: heads after positions in memory."""
    library, shape = importlib.import_module("cudnn.flex_attention"), case.shape
    points = mask.to_cudnn(shape.length, batch=shape.batch, heads=shape.heads).mask_func
    if points.shape[1] > _MOST_ENDPOINTS:
        raise ValueError(f"queries have up to {points.shape[1]} endpoints of intervals")
    own = heads_inside(inputs)
    given = [t.transpose(1, 2) for t in own]
    gradients = any(t.requires_grad for t in own)
    plan = library.create_mask_plan(points.to(own[0].device), *given, build_backward=gradients)

    def run() -> torch.Tensor:
        out: torch.Tensor = library.flex_attn_func(
            *[t.transpose(1, 2) for t in own], mask_plan=plan
        )
        return out.transpose(1, 2)

    return Contender(run, own)
