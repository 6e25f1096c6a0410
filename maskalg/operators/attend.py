"""Calls of the operators, with arguments made from those of `attention`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import errors
from ..backends.call import Result
from ..backends.results import with_sink
from ..engine.float8 import FLOAT8, descales_of
from ..engine.keys import by_kind
from ..engine.normal_form import keyed
from ..engine.pages import Pages, pages_gradient
from ..formula.derived import follow
from ..formula.expression import Expression
from ..formula.watched import recorded, transformed
from ..values.weights import Weight
from . import counting, transforms
from .inputs import check_tensor, check_weight, extents_of, no_tangents


@dataclass(frozen=True)
class Wanted:
    """The options of a call besides its tensors; see `attention`."""

    scale: float | None
    return_lse: bool
    weight: Weight
    descale: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    backend: str
    pages: Pages | None = None
    nan_safe: bool = False


def attend_traced(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    expression: Expression,
    wanted: Wanted,
) -> Result:
    """Output and lse by the operator; `torch.compile` follows this function and those it calls."""
    if not isinstance(expression, Expression):
        raise errors.not_a_score(expression)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, tensor)
    weight = wanted.weight
    check_weight(weight, query, wanted.return_lse)
    expression, pages = weight.applied(expression), wanted.pages
    if pages is not None:
        expression = pages.within(expression)
    structure, parameters = keyed(expression)
    if not torch.compiler.is_compiling():
        follow(parameters)
        counting.register()
    tables, integers, reals = by_kind(parameters)
    inputs = (query, key, value, *tables)
    differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    # A trace of torch.jit is one graph for training and for inference.
    traced = not torch.compiler.is_compiling() and recorded()
    lse_wanted = wanted.return_lse or weight.sink is not None or differentiable or traced
    weights = "exp" if weight.formula is None else "mean" if weight.normalised else "sum"
    plain = torch.compiler.is_compiling() or not transformed()
    if not plain:
        # Checked here, so that errors show the shapes of one member of a vmap, not of all together.
        extents_of(query, key, value, pages)
        if pages is not None or query.dtype == FLOAT8:
            no_tangents(inputs)  # the operators of other calls refuse them by themselves
    operator = torch.ops.maskalg.attention_forward if plain else transforms.forward
    arguments = (
        query,
        key,
        value,
        tables,
        structure,
        integers,
        reals,
        wanted.scale,
        weights,
        lse_wanted,
        wanted.backend,
        wanted.nan_safe,
    )
    if pages is not None:
        if differentiable:
            raise pages_gradient()
        descale = [] if wanted.descale is None else [*wanted.descale]
        where = [pages.table, pages.lengths]
        where += [] if pages.cu_seqlens_q is None else [pages.cu_seqlens_q]
        out, lse = torch.ops.maskalg.attention_pages(where, pages.most_queries, descale, *arguments)
    elif query.dtype == FLOAT8 or wanted.descale is not None:
        descales = _descales(query, key, value, wanted)
        if differentiable:
            raise errors.float8_gradient()
        out, lse = torch.ops.maskalg.attention_float8(descales, *arguments)
    else:
        out, lse = operator(*arguments)
    return with_sink(out, lse, weight.sink), lse if wanted.return_lse else None


def _descales(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, wanted: Wanted
) -> list[torch.Tensor]:
    """The factors of float8 inputs, or none; raises as `attention` does without an operator."""
    if wanted.weight.formula is not None:
        raise errors.float8_weight(wanted.weight.name)
    return [] if wanted.descale is None else [*descales_of(wanted.descale, query, key, value)]
