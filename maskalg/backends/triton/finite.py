"""Calls with `nan_safe`: NaN and infinities reach only the queries that keep them.

The kernels are the same as without it, and get copies of the inputs (`kernels/finite.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import torch
import triton
from maskalg_kernels import finite as kernels

from ...errors import BackendError
from ...formula.nodes import Node
from ..call import Call
from ..results import empty_result
from .launching.spec import OF_ALL

_AT_ONCE: Final = 4096  # numbers of a tensor that a program holds
_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32}

# The exponent of NaN and infinities, and the bits of a NaN.
_WILD: Final = {
    torch.float16: (0x7C00, 0x7E00),
    torch.bfloat16: (0x7F80, 0x7FC0),
    torch.float32: (0x7F800000, 0x7FC00000),
    torch.float8_e4m3fn: (0x7F, 0x7F),  # has no infinity
}

Saved = tuple[torch.Tensor, torch.Tensor]
Change = tuple[torch.Tensor, torch.Tensor | None]


def with_finite_values(call: Call) -> Call:
    """The call for the forward kernels.

    Values are finite. If a key or its value is not finite, the key becomes NaN, so that queries
    that keep it become NaN.
    """
    if not carries_nan(call.form.structure.bias):
        raise BackendError(
            "nan_safe=True marks scores by NaN, and this score may turn NaN into a number: it "
            "compares the score, rounds it, or does not depend on it. Leave nan_safe out, and "
            "clean keys and values by torch.nan_to_num."
        )
    return _of_finite_keys(call, _WILD[call.key.dtype][1])


def with_finite_gradients(call: Call, saved: Saved, change: Change) -> tuple[Call, Saved, Change]:
    """The call for the backward kernels, with output and lse, and their gradients.

    All tensors are finite but the lse. If a query keeps a key that is not finite, or is not finite
    itself, its lse makes the weights of its kept keys overflow. Weights that are not normalised are
    divided by 1, or by NaN.
    """
    call = _of_finite_keys(call, 0)
    query, (out, lse), (gradient, of_lse) = call.query, saved, change
    normalised = call.weight.normalised
    lse = (lse if normalised else torch.ones_like(lse)).contiguous()
    of_lse = None if of_lse is None else of_lse.float().contiguous()
    rows = torch.empty_like(lse), None if of_lse is None else torch.empty_like(of_lse)
    weighted = call.weight.formula is not None
    found = _finite((query, gradient, out), (0, 0, 0), (lse, of_lse, *rows), weighted)
    if not normalised:
        # Gradients of these weights have no dO . O. So the output is 0, and by `part` no kernel
        # computes dO . O anew.
        call = call._replace(weight=replace(call.weight, normalised=True), part=True)
        found[2].zero_()
    return call._replace(query=found[0]), (found[2], rows[0]), (found[1], rows[1])


def spoiled_tables(lse: torch.Tensor, tables: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The gradients of tables, NaN if a query is: sums in fixed point cannot hold NaN.

    Args:
        lse: the lse from `with_finite_gradients`.
    """
    spoiled = (lse == kernels.SPOILED.value) | lse.isnan()
    return {slot: torch.where(spoiled.any(), torch.nan, t) for slot, t in tables.items()}


@lru_cache(maxsize=4096)
def carries_nan(bias: Node) -> bool:
    """Whether the formula shows that the biased score is NaN if the score is."""
    if bias.op == "score":
        return True
    if bias.op == "where":
        return all(map(carries_nan, bias.args[1:]))
    if bias.op == "pow":
        base, exponent = bias.args
        return exponent.op == "const" and exponent.data != 0 and carries_nan(base)
    passes_on = bias.op in ("add", "mul", "div", "min", "max", "call")
    return passes_on and any(map(carries_nan, bias.args))


def _of_finite_keys(call: Call, wild_key: int) -> Call:
    """The call with copies of keys and values: if either is not finite, `wild_key` and 0."""
    key, value = _finite((call.key, call.value), (wild_key, 0))
    return call._replace(key=key, value=value)


def _finite(
    tensors: tuple[torch.Tensor, ...],
    wild: tuple[int, ...],
    sums: tuple[torch.Tensor | None, ...] = (None,) * 4,
    weighted: bool = False,
) -> list[torch.Tensor]:
    """Copies that hold `wild` in rows in which one of the tensors is not finite.

    Args:
        sums: of queries, lse and its gradient, and tensors for copies of them.
    """
    like = tensors[0]
    batch, heads, length, _ = like.shape
    sizes = tuple([tensor.shape[-1] for tensor in tensors])
    pads = tuple([triton.next_power_of_2(max(size, 1)) for size in sizes])
    rows = max(_AT_ONCE // max(pads), 1)
    programs = batch * heads * triton.cdiv(length, rows)
    copies = [empty_result(like, size) for size in sizes]
    if programs:
        bits, strides = zip(*[(_bits(t), t.stride()) for t in (*tensors, *copies)], strict=True)
        count = len(tensors)
        with torch.cuda.device_of(like):
            kernels.finite_rows[(programs,)](
                bits[:count], bits[count:], strides[:count], strides[count:], *sums, length, heads,
                SIZES=sizes, PADS=pads, ROWS=rows, EXPONENT=_WILD[like.dtype][0], WILD=wild,
                WEIGHTED=weighted, **OF_ALL,
            )  # fmt: skip
    return copies


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.element_size()])
