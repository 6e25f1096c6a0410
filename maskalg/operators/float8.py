"""The operator `maskalg::attention_float8`: forward attention of float8 inputs."""

from __future__ import annotations

from typing import Any, Final

import torch

from ..backends.float8 import attend_float8
from ..backends.results import empty_result, in_order_of
from ..engine.float8 import descales_of
from .define import Operands, Tensors

FLOAT8_FORWARD: Final = "maskalg::attention_float8"

torch.library.define(
    FLOAT8_FORWARD,
    "(Tensor[] descale, Tensor query, Tensor key, Tensor value, Tensor[] tables, str structure, "
    "SymInt[] integers, float[] reals, float? scale, str weights, bool lse_wanted, str backend) "
    "-> (Tensor, Tensor)",
)


def _forward(descale: Tensors, *operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """As `maskalg::attention_forward`; `descale` has three tensors, or none."""
    found = Operands(*operands)
    descales = descales_of(descale, *found.inputs) if descale else None
    out, lse = attend_float8(
        found.call(lse_wanted=found.lse_wanted, descales=descales), found.backend
    )
    out = in_order_of(found.query, out)
    return out, out.new_empty(0, dtype=torch.float32) if lse is None else lse


def _forward_fake(descale: Tensors, *operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
    found = Operands(*operands)
    query = found.query
    call = found.call(descales=descales_of(descale, *found.inputs) if descale else None)
    out = empty_result(query, found.value.shape[-1], call.out_dtype)
    return out, query.new_empty(query.shape[:3] if found.lse_wanted else 0, dtype=torch.float32)


torch.library.impl(FLOAT8_FORWARD, "CompositeExplicitAutograd", _forward)
torch.library.register_fake(FLOAT8_FORWARD, _forward_fake)
