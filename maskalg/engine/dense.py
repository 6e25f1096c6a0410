"""Masks and biases written out as matrices.

In a function compiled by `torch.compile` the operator `maskalg::dense` does it: torch traces the
operations that the operator consists of, and not how a formula is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import torch

from ..errors import MaskValueError
from ..formula.expression import Expression
from ..formula.nodes import is_additive
from .evaluate import Environment, device_of, evaluate, grid
from .extents import Lengths, dependence, resolve
from .keys import by_kind, form_of
from .normal_form import Bound, bound, keyed

_DENSE: Final = "maskalg::dense"

torch.library.define(
    _DENSE,
    "(Tensor[] tables, str structure, SymInt[] integers, float[] reals, SymInt q_len, "
    "SymInt? kv_len, SymInt? batch, SymInt? heads, bool added) -> Tensor",
)


def to_dense(mask: Expression, lengths: Lengths) -> torch.Tensor:
    """The Boolean matrix `[batch, heads, q_len, kv_len]` of a mask; see `Mask.to_dense`."""
    return _written(mask, lengths, added=False)


def dense_score(score: Expression, lengths: Lengths) -> torch.Tensor:
    """The bias of a score, float32 `[batch, heads, q_len, kv_len]`; see `Score.to_dense`."""
    if not is_additive(score.bias_node):
        raise MaskValueError(
            f"`{score!r}` does more to a score than adding, so no matrix of addends represents it. "
            "Write score.mask.to_dense(…) for its mask, score.to_score_mod() for a function."
        )
    return _written(score, lengths, added=True)


def _written(expression: Expression, lengths: Lengths, *, added: bool) -> torch.Tensor:
    if not torch.compiler.is_dynamo_compiling():
        return _dense(bound(expression), lengths, added=added)
    structure, parameters = keyed(expression)
    tables, integers, reals = by_kind(parameters)
    sizes = lengths.q_len, lengths.kv_len, lengths.batch, lengths.heads
    operator = torch.ops.maskalg.dense
    return cast(torch.Tensor, operator(tables, structure, integers, reals, *sizes, added))


def _dense(form: Bound, lengths: Lengths, *, added: bool) -> torch.Tensor:
    extents, structure = resolve(form, lengths), form.structure
    parts = (structure.mask, structure.bias) if added else (structure.mask,)
    counts = [dependence(part, form, extents) for part in parts]
    shape = (max(c.batch for c in counts), max(c.heads for c in counts))
    device = device_of(form)
    indices = grid(*shape, (0, extents.q_len), (0, extents.kv_len), device)
    zero = torch.zeros((), device=device)
    environment = Environment(indices, form.values, zero)
    dense = evaluate(structure.mask, environment)
    if added:
        dense = torch.where(dense, evaluate(structure.bias, environment), -torch.inf)
    return dense.expand(*shape, extents.q_len, extents.kv_len).clone()


def _operator(
    tables: Sequence[torch.Tensor],
    structure: str,
    integers: Sequence[int],
    reals: Sequence[float],
    q_len: int,
    kv_len: int | None,
    batch: int | None,
    heads: int | None,
    added: bool,
) -> torch.Tensor:
    form = form_of(structure, tables, integers, reals)
    return _dense(form, Lengths(q_len, kv_len, batch, heads), added=added)


torch.library.impl(_DENSE, "CompositeImplicitAutograd", _operator)
