"""Attention, forward and backward, against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from ..attention import attention
from ..errors import MaskTypeError
from ..formula.expression import Expression
from .assertions import describe, not_under_test

# Largest errors, relative to the largest value (at least 1) of the compared tensor.
TOLERANCES: Final = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}


@dataclass(frozen=True)
class Compared:
    """The largest error of each result, relative to its largest value (at least 1)."""

    errors: dict[str, float]

    @property
    def worst(self) -> float:
        return max(self.errors.values())


def assert_attention_close(
    score: Expression | None,
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    head_dim: int = 16,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    backend: str | None = None,
    attend: Callable[..., torch.Tensor] | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> Compared:
    """Attention and its gradients agree with the dense float64 reference on random inputs.

    Output, the gradients of query, key and value, and those of the score's tensors that require
    one are compared. The reference is computed from the same inputs, rounded to `dtype`.

    Args:
        score: a mask, a bias, `mask + bias`, or None.
        q_len: number of queries.
        kv_len: number of keys; None means `q_len`.
        batch: batch size of the inputs.
        heads: query heads.
        kv_heads: heads of key and value; None means `heads`.
        head_dim: size of a head of query and key.
        value_dim: size of a head of value; None means `head_dim`.
        dtype: dtype of the inputs; the tensors of the score keep theirs.
        device: device of the inputs; the score's tensors are moved there.
        backend: backend of `maskalg.attention`; None chooses by the device.
        attend: instead of `maskalg.attention`, a function of your own:
            `attend(query, key, value, score)` of `[batch, heads, length, dim]` tensors.
        tolerance: largest error, relative to the largest value of a tensor where that is above 1;
            by default 1e-9, 2e-5, 1e-2 or 6e-2 for float64, float32, float16, bfloat16, and no
            less for a gradient than its own dtype allows.
        seed: seed of the random inputs.

    Returns:
        The errors, for further assertions.

    Raises:
        TypeError: `score` is no expression.
        AssertionError: a result that is too far away or not finite, with the score and all errors.
    """
    __tracebackhide__ = True
    if score is not None and not isinstance(score, Expression):
        wanted = "a mask, a bias or `mask + bias`"
        raise not_under_test("assert_attention_close", wanted, score)
    if dtype not in TOLERANCES:
        raise MaskTypeError(
            f"assert_attention_close: dtype must be one of {', '.join(map(str, TOLERANCES))}, got "
            f"{dtype}."
        )
    generator = torch.Generator().manual_seed(seed)
    kv_len, kv_heads = q_len if kv_len is None else kv_len, kv_heads or heads
    shapes = (
        (batch, heads, q_len, head_dim),
        (batch, kv_heads, kv_len, head_dim),
        (batch, kv_heads, kv_len, value_dim or head_dim),
        (batch, heads, q_len, value_dim or head_dim),
    )
    *inputs, change = (
        torch.randn(shape, generator=generator).to(dtype).to(device) for shape in shapes
    )
    moved = None if score is None else score.to(device)

    found = _results(attend or partial(attention, backend=backend), inputs, moved, change)
    exact = None if score is None else _in_float64(score)
    doubles = [tensor.cpu().double() for tensor in (*inputs, change)]
    wanted = _results(partial(attention, backend="reference"), doubles[:3], exact, doubles[3])
    compared = Compared({name: _error(found[name], wanted[name]) for name in wanted})
    own = TOLERANCES[dtype] if tolerance is None else tolerance
    # A tensor of the score may be of a lower precision than the inputs.
    limits = {name: own if tolerance else max(own, TOLERANCES[found[name].dtype]) for name in found}
    if any(not error <= limits[name] for name, error in compared.errors.items()):
        lines = [
            f"  {name}: {error:.2g} (at most {limits[name]:.2g})"
            for name, error in compared.errors.items()
        ]
        text = "no score" if score is None else describe(score)
        raise AssertionError(
            f"{text}\nq_len={q_len}, kv_len={kv_len}, batch={batch}, heads={heads}, "
            f"kv_heads={kv_heads}, {dtype} differs from the float64 reference; largest errors:\n"
            + "\n".join(lines)
        )
    return compared


def _in_float64(score: Expression) -> Expression:
    reals = {
        name: value.detach().cpu().double().requires_grad_(value.requires_grad)
        for name, value in score.parameters.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    return score.to("cpu").bind(reals)


def _learned(score: Expression | None) -> dict[str, torch.Tensor]:
    values = {} if score is None else score.parameters
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and value.requires_grad
    }


def _results(
    attend: Callable[..., torch.Tensor],
    inputs: list[torch.Tensor],
    score: Expression | None,
    change: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Output and gradients by name."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    learned = _learned(score)
    out = attend(*leaves, score)
    if out.shape != change.shape:
        raise AssertionError(f"output of shape {list(out.shape)}, expected {list(change.shape)}")
    names = ["query", "key", "value", *learned]
    grads = torch.autograd.grad(
        out, [*leaves, *learned.values()], change, allow_unused=True, materialize_grads=True
    )
    of = zip(names, grads, strict=True)
    return {"output": out.detach(), **{f"gradient of {name}": grad for name, grad in of}}


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative to the largest value; NaN and infinity count as infinitely wrong."""
    if not wanted.numel():
        return 0.0
    away = (found.cpu().double() - wanted).abs().nan_to_num(nan=torch.inf).max()
    return float(away / wanted.abs().max().clamp(min=1))
