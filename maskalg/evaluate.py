"""Formulas evaluated with torch: the dense oracle, and the tiles a proof leaves open.

Integers are evaluated in 64 bits; where sums of entries are ordered, they stop at the ends of their
range. A comparison of sums is split into a part that reads the key index and a part that does not:
`q - k <= w` costs one broadcast comparison of two vectors instead of a matrix of differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from . import nodes
from .algebra import Mask
from .comparisons import arranged, is_negative
from .dropped import of_kept, outside, within
from .extents import Extents, dependence, resolve
from .functions import function_of
from .node import Node, in_order
from .normalform import Bound, Value, bound
from .parameters import Slot
from .saturation import as_float32, saturated_difference, saturated_sum, whole

StepReader = Callable[[Node, "list[torch.Tensor]"], torch.Tensor]


@dataclass(frozen=True)
class Environment:
    """What a formula is evaluated at.

    `indices` holds an integer tensor for each index name, broadcastable against each other;
    `values` the slots; `score` the scaled score where the formula is a bias; `step` reads the
    monotone tables of closed forms, of documents and of sets. `double` asks for numbers of 64 bits
    where no score says so, `saturates` for integer sums that stop at the ends of 64 bits. `kept` is
    where the score and tables read without an index get gradients from; None for everywhere.
    """

    indices: Mapping[str, torch.Tensor]
    values: tuple[Value, ...]
    score: torch.Tensor | None = None
    step: StepReader | None = None
    double: bool = False
    saturates: bool = False
    kept: torch.Tensor | None = None

    @property
    def device(self) -> torch.device:
        return next(iter(self.indices.values())).device

    @property
    def real(self) -> torch.dtype:
        """What numbers are computed in: float32 in every mask, float64 in biases of such scores."""
        of_score = self.score is not None and self.score.dtype == torch.float64
        return torch.float64 if of_score or self.double else torch.float32


def evaluate(node: Node, env: Environment) -> torch.Tensor:
    """The value of the formula, broadcast over the indices it reads."""
    rule = _RULES.get(node.op)
    if rule is None:
        raise NotImplementedError(f"no value for {node.op!r}: add it to maskalg/evaluate.py")
    return rule(node, env)


def grid(
    extents: Extents,
    batch: int,
    heads: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    device: torch.device,
) -> dict[str, torch.Tensor]:
    """Indices of a rectangle of the attention matrix as `[batch, heads, q, k]` views."""
    return {
        "batch": torch.arange(batch, device=device).view(-1, 1, 1, 1),
        "head": torch.arange(heads, device=device).view(1, -1, 1, 1),
        "q_idx": torch.arange(*rows, device=device).view(1, 1, -1, 1),
        "kv_idx": torch.arange(*columns, device=device).view(1, 1, 1, -1),
    }


def to_dense(
    mask: Mask, q_len: int, kv_len: int | None, *, batch: int | None, heads: int | None
) -> torch.Tensor:
    """The Boolean matrix `[batch, heads, q_len, kv_len]` of a mask; see `Mask.to_dense`."""
    form = bound(mask)
    extents = resolve(form, q_len, kv_len, batch, heads)
    sizes = dependence(form.structure.mask, form, extents)
    device = device_of(form)
    indices = grid(
        extents, sizes.batch, sizes.heads, (0, extents.q_len), (0, extents.kv_len), device
    )
    kept = evaluate(form.structure.mask, Environment(indices, form.values))
    return kept.expand(sizes.batch, sizes.heads, extents.q_len, extents.kv_len).clone()


def device_of(form: Bound) -> torch.device:
    """The device the tensors of an expression live on; the CPU when it has none."""
    return next((tensor.device for _, tensor in form.tensors()), torch.device("cpu"))


def _index(node: Node, env: Environment) -> torch.Tensor:
    return env.indices[cast(str, node.data)]


def _const(node: Node, env: Environment) -> torch.Tensor:
    return _number(cast(float, node.data), env)


def _scalar(node: Node, env: Environment) -> torch.Tensor:
    return _number(cast(float, env.values[cast(Slot, node.own[0]).index]), env)


def _number(value: bool | int | float, env: Environment) -> torch.Tensor:
    dtype = env.real if isinstance(value, float) else None
    if dtype == torch.float32:
        value = as_float32(value)
    # Filled on the device: a copy from here would wait for it.
    return torch.full((), value, dtype=dtype, device=env.device)


def _read(node: Node, env: Environment) -> torch.Tensor:
    table = cast(torch.Tensor, env.values[cast(Slot, node.own[0]).index])
    entries = _entries(table, node, env)
    if table.is_floating_point():
        return entries.to(env.real)
    # Small and unsigned integers would wrap in the arithmetic that follows.
    return entries.to(torch.int64) if node.kind == "int" else entries


def _entries(table: torch.Tensor, node: Node, env: Environment) -> torch.Tensor:
    if not node.args:
        return of_kept(table, env.kept)
    indices = [
        evaluate(arg, env).clamp(0, max(table.shape[axis] - 1, 0))
        for axis, arg in enumerate(node.args)
    ]
    if table.numel() == 0:
        shape = np.broadcast_shapes(*[index.shape for index in indices])
        return table.new_zeros(shape)
    return table[tuple(indices)]


def _extent(node: Node, env: Environment) -> torch.Tensor:
    table = cast(torch.Tensor, env.values[cast(Slot, node.own[0]).index])
    return torch.full((), table.shape[cast(int, node.data)], device=env.device)


def _step(node: Node, env: Environment) -> torch.Tensor:
    assert env.step is not None, "closed forms are evaluated with their step tables"
    return env.step(node, [evaluate(arg, env) for arg in node.args])


def _member(node: Node, env: Environment) -> torch.Tensor:
    assert env.step is not None, "closed forms are evaluated with their sets"
    return env.step(node, [evaluate(arg, env) for arg in node.args[1:]])


def _score(node: Node, env: Environment) -> torch.Tensor:
    assert env.score is not None, "a bias is evaluated at a score"
    return of_kept(env.score, env.kept)


def _opaque(node: Node, env: Environment) -> torch.Tensor:
    function = cast(Callable[..., torch.Tensor], node.data)
    return function(*[evaluate(arg, env) for arg in node.args])


def _fold(operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Rule:
    def rule(node: Node, env: Environment) -> torch.Tensor:
        parts = [evaluate(arg, env) for arg in in_order(node)]
        if node.kind != "real":
            # Small operands first: vectors combine before they meet a matrix.
            parts.sort(key=lambda part: part.numel())
        result = parts[0]
        for part in parts[1:]:
            result = operation(result, part)
        return result

    return rule


def _compare(
    operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Rule:
    def rule(node: Node, env: Environment) -> torch.Tensor:
        left, right = node.args
        if "real" in (left.kind, right.kind) or "bool" in (left.kind, right.kind):
            return operation(evaluate(left, env), evaluate(right, env))
        compared = arranged(node)
        saturates = node.op == "ge" and (env.saturates or _reads_long(node, env))
        if saturates != env.saturates:
            env = replace(env, saturates=saturates)
        sides = [evaluate(arg, env) for arg in compared.args]
        return torch.gt(*sides) if compared.op == "gt" else operation(*sides)

    return rule


def _of_two(
    operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *, whole: bool = False
) -> Rule:
    def rule(node: Node, env: Environment) -> torch.Tensor:
        left, right = (evaluate(arg, env) for arg in node.args)
        # Divisors of integers are at least 1, but in a branch that is not taken.
        return operation(left, right.clamp(min=1) if whole else right)

    return rule


def _sum(node: Node, env: Environment) -> torch.Tensor:
    if not env.saturates or node.kind != "int":
        return _fold(torch.add)(node, env)
    signs = [is_negative(term) for term in node.args]
    added = [term for term, minus in zip(node.args, signs, strict=True) if not minus]
    taken = [nodes.negate(term) for term, minus in zip(node.args, signs, strict=True) if minus]
    total = saturated_sum([evaluate(term, env) for term in added or [nodes.const(0)]])
    if not taken:
        return total
    return saturated_difference(total, saturated_sum([evaluate(term, env) for term in taken]))


def _product(node: Node, env: Environment) -> torch.Tensor:
    negated = env.saturates and node.kind == "int" and nodes.const(-1) in node.args
    if negated and len(node.args) == 2:
        return saturated_difference(_number(0, env), evaluate(nodes.negate(node), env))
    return _fold(torch.mul)(node, env)


def _reads_long(node: Node, env: Environment) -> bool:
    """Whether entries of 64 bits are compared: sums of others stay far from the ends."""
    values = [env.values[p.index] for p in node.params if isinstance(p, Slot) and p.is_table]
    return any(isinstance(v, torch.Tensor) and v.dtype == torch.int64 for v in values)


def _where(node: Node, env: Environment) -> torch.Tensor:
    chosen = evaluate(node.args[0], env)
    then = evaluate(node.args[1], replace(env, kept=within(env.kept, chosen)))
    otherwise = evaluate(node.args[2], replace(env, kept=outside(env.kept, chosen)))
    return torch.where(chosen, then, otherwise)


def _call(node: Node, env: Environment) -> torch.Tensor:
    argument = evaluate(node.args[0], env)
    if not argument.is_floating_point():
        argument = argument.to(env.real)
    if node.data == "float":
        return argument
    return function_of(cast(str, node.data))(argument)


def _power(node: Node, env: Environment) -> torch.Tensor:
    base, exponent = (evaluate(arg, env) for arg in node.args)
    if not base.is_floating_point():
        base = base.to(env.real)
    return torch.pow(base, exponent)


def _trunc(node: Node, env: Environment) -> torch.Tensor:
    return whole(evaluate(node.args[0], env))


Rule = Callable[[Node, Environment], torch.Tensor]

_RULES: dict[str, Rule] = {
    "index": _index,
    "const": _const,
    "scalar": _scalar,
    "read": _read,
    "extent": _extent,
    "step": _step,
    "member": _member,
    "score": _score,
    "opaque": _opaque,
    "add": _sum,
    "mul": _product,
    "min": _fold(torch.minimum),
    "max": _fold(torch.maximum),
    "and": _fold(torch.logical_and),
    "or": _fold(torch.logical_or),
    "floordiv": _of_two(torch.floor_divide, whole=True),
    "mod": _of_two(torch.remainder, whole=True),
    "div": _of_two(torch.true_divide),
    "pow": _power,
    "trunc": _trunc,
    "bitand": _fold(torch.bitwise_and),
    "bitor": _fold(torch.bitwise_or),
    "bitxor": _fold(torch.bitwise_xor),
    "ge": _compare(torch.ge),
    "gt": _of_two(torch.gt),
    "eq": _compare(torch.eq),
    "where": _where,
    "not": lambda node, env: ~evaluate(node.args[0], env),
    "call": _call,
}
