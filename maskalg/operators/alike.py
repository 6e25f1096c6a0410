"""Calls like the last one with their expression: they are compared with it instead of checked.

The layers of a model make the same call with other tensors. Whatever checks and launches depend on
is compared, and the rest of the call is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from ..backends.call import Call
from ..engine.float8 import FLOAT8
from ..engine.memory import kinds_of, state_of
from ..engine.normal_form import bound
from ..formula.expression import Expression
from ..formula.watched import PLAIN
from ..values.weights import Weight, softmax
from .inputs import note_past_keys

_LAST: Final = "_last"
"""Where an expression holds the facts of its last call, and the fields but the inputs."""

Facts = list[Any]


def facts_of(
    inputs: Sequence[torch.Tensor],
    expression: Expression,
    weight: Weight,
    options: tuple[float | None, bool, bool],
) -> Facts | None:
    """All that two calls without pages and factors of float8 must share to be alike.

    None for calls that are not compared, such as those of inputs that are converted, of weights
    with a formula, and of expressions with tensors whose writes are not counted.

    Args:
        inputs: query, key and value.
        options: scale, `return_lse` and `nan_safe`.
    """
    if not isinstance(expression, Expression) or type(weight) is not Weight:
        return None
    if weight.formula is not None or type(options[0]) not in (float, type(None)):
        return None
    query, key, value = inputs
    sink = weight.sink
    facts: Facts = [*options, weight.normalised, query is key, key is value, query is value]
    if isinstance(sink, torch.Tensor):
        inputs = (*inputs, sink)
    else:
        facts.append(sink)
    for tensor in inputs:
        if type(tensor) not in PLAIN or tensor.is_nested or tensor.layout != torch.strided:
            return None
        if tensor.is_neg():
            return None
    facts += kinds_of(inputs)
    if query.dtype == FLOAT8:
        return None
    for table in bound(expression).tables:
        if table.is_inference():
            return None
        facts.append(state_of(table))
    return facts


def recalled(
    facts: Facts | None, expression: Expression, inputs: Sequence[torch.Tensor], weight: Weight
) -> Call | None:
    """The call on these inputs if it is like the last one with the expression."""
    last = None if facts is None else expression.__dict__.get(_LAST)
    if last is None or last[0] != facts:
        return None
    query, key, value = inputs
    call = Call(query, key, value, *last[1])
    if call.form.structure.moves is not None and not call.return_lse:
        note_past_keys(call.form, call.extents)
    return call if weight is softmax else call._replace(weight=weight)


def remembered(facts: Facts | None, expression: Expression, call: Call) -> Call:
    """The checked call, which calls like it share a memory with."""
    if facts is None:
        return call
    call = call._replace(alike={})
    # Not with its weight, which may hold a tensor of the caller.
    expression.__dict__[_LAST] = facts, call._replace(weight=softmax).others
    return call
