"""The operator `maskalg::attention_float8`: forward attention of float8 inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from ..backends.float8 import attend_float8
from ..backends.results import empty_result, in_order_of
from ..engine.float8 import descales_of
from .define import Tensors, call_of, form_of

FLOAT8_FORWARD: Final = "maskalg::attention_float8"

torch.library.define(
    FLOAT8_FORWARD,
    "(Tensor[] descale, Tensor query, Tensor key, Tensor value, Tensor[] tables, str structure, "
    "SymInt[] integers, float[] reals, float? scale, str weights, bool lse_wanted, str backend) "
    "-> (Tensor, Tensor)",
)


def _forward(
    descale: Tensors,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tables: Tensors,
    structure: str,
    integers: Sequence[int],
    reals: Sequence[float],
    scale: float | None,
    weights: str,
    lse_wanted: bool,
    backend: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `maskalg::attention_forward`; `descale` has three tensors, or none."""
    inputs = (query, key, value)
    form = form_of(structure, tables, integers, reals)
    descales = descales_of(descale, *inputs) if descale else None
    call = call_of(inputs, form, scale, weights, lse_wanted=lse_wanted, descales=descales)
    out, lse = attend_float8(call, backend)
    out = in_order_of(query, out)
    return out, out.new_empty(0, dtype=torch.float32) if lse is None else lse


def _forward_fake(
    descale: Tensors,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tables: Tensors,
    structure: str,
    integers: Sequence[int],
    reals: Sequence[float],
    scale: float | None,
    weights: str,
    lse_wanted: bool,
    backend: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = (query, key, value)
    descales = descales_of(descale, *inputs) if descale else None
    form = form_of(structure, tables, integers, reals)
    call = call_of(inputs, form, scale, weights, descales=descales)
    out = empty_result(query, value.shape[-1], call.out_dtype)
    return out, query.new_empty(query.shape[:3] if lse_wanted else 0, dtype=torch.float32)


torch.library.impl(FLOAT8_FORWARD, "CompositeExplicitAutograd", _forward)
torch.library.register_fake(FLOAT8_FORWARD, _forward_fake)
