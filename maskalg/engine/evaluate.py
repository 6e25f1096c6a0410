"""Formulas evaluated with torch: the dense oracle, and the tiles a proof leaves open.

Integers do not overflow. They are evaluated in 64 bits where no part of a formula can leave 64
bits, else in more (`long_integers.py`); a result past 64 bits is clamped to the nearest integer of
64 bits, which compares with positions in the same way. A comparison of sums is split into a part
that reads the key index and a part that does not: `q - k <= w` costs one broadcast comparison of
two vectors instead of a matrix of differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Final, cast

import numpy as np
import torch

from ..formula.comparisons import arranged
from ..formula.entries import readable
from ..formula.functions import function_of
from ..formula.meaning import COMPARISONS, OPERATIONS, REALS, as_float32, whole
from ..formula.nodes import Node, in_order
from ..formula.parameters import Slot
from . import long_integers as longs
from .extents import Extents, dependence
from .long_integers import Long
from .memory import Memory
from .normal_form import Bound, Value
from .widths import MOST_POSITIONS, Told, compares_in_64, limbs, outgrows

_LIMITS: Final = Memory(256)
_AT_ONCE: Final = 1 << 22  # pairs: a few megabytes, however long the sequences are


def of_kept(values: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
    """`values` of pairs, with gradients from kept pairs only; None keeps all.

    Derivatives at pairs that the mask drops are 0, whatever the bias is there. The chain rule
    multiplies the 0 of a dropped pair with the slope of the bias, and 0 * inf is NaN:
    `p[head] * log(abs(q_idx - kv_idx))` at q = k. The inputs of a bias pass through here.

    The result has the broadcast shape of both: an entry that many pairs read is repeated first, so
    that its gradient is a sum over kept pairs.

    Args:
        values: broadcastable to `[batch, heads, rows, columns]`.
        kept: Boolean, likewise.
    """
    return values if kept is None else torch.where(kept, values, values.detach())


def within(kept: torch.Tensor | None, chosen: torch.Tensor) -> torch.Tensor | None:
    """The kept pairs that a condition chooses; None if all pairs are kept."""
    return None if kept is None else kept & chosen


def outside(kept: torch.Tensor | None, chosen: torch.Tensor) -> torch.Tensor | None:
    """The kept pairs that a condition does not choose; None if all pairs are kept."""
    return None if kept is None else kept & ~chosen


StepReader = Callable[[Node, "list[torch.Tensor]", "Environment"], torch.Tensor]


@dataclass(frozen=True)
class Environment:
    """The place and values at which a formula is evaluated.

    Attributes:
        indices: an integer tensor for each index name, broadcastable against each other.
        values: the value of each slot.
        score: the scaled score, where the formula is a bias.
        step: reads the monotone tables of closed forms, of documents and of sets.
        double: whether real numbers are float64 even without a float64 score.
        kept: the pairs that send gradients to the score and to tables read without an index; None
            for all pairs.
        counting: an index that counts up along the last axis, its first number and its length.
            Tables read at it are sliced, and its tensor is made only where it is computed with.
    """

    indices: Mapping[str, torch.Tensor]
    values: tuple[Value, ...]
    score: torch.Tensor | None = None
    step: StepReader | None = None
    double: bool = False
    kept: torch.Tensor | None = None
    counting: tuple[str, int, int] | None = None

    @property
    def device(self) -> torch.device:
        return next(iter(self.indices.values())).device

    @property
    def real(self) -> torch.dtype:
        """The dtype of real numbers: float64 with `double` or in a bias of float64 scores."""
        of_score = self.score is not None and self.score.dtype == torch.float64
        return torch.float64 if of_score or self.double else torch.float32

    @cached_property
    def told(self) -> tuple[tuple[Told, ...], int]:
        """The limits of what is read, where that waits for no device: for each value the value, or
        the limits of a table's 64-bit entries; and an integer that no position exceeds."""
        indices = [index for index in self.indices.values() if index.numel()]
        if self.step is not None or not all(map(readable, indices)):
            return self.values, MOST_POSITIONS
        tables = [value for value in self.values if isinstance(value, torch.Tensor)]
        sizes = [size for table in tables for size in table.shape]
        _, first, count = self.counting or ("", 0, 0)
        ends = [int(end) for index in indices for end in index.aminmax()]
        return tuple(map(_limits, self.values)), max(first + count, *map(abs, ends), *sizes, 1)


def _limits(value: Value) -> Told:
    """The limits of the entries of a 64-bit table that can be read, else the value itself."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64:
        return value
    if not readable(value) or not value.numel():
        return value

    def ends() -> Told:
        least, most = value.aminmax()
        return int(least), int(most)

    return _LIMITS.of_tensors((), [value], ends)


def evaluate(node: Node, env: Environment) -> torch.Tensor:
    """The value of the formula, broadcast over the indices it reads; integers in 64 bits.

    Raises:
        MaskValueError: an integer that may have more bits than `long_integers` hold.
    """
    if node.kind == "int" and _outgrows(node, env):
        return longs.clamped(_long(node, env, limbs(node, *env.told)))
    rule = _RULES.get(node.op)
    if rule is None:
        raise NotImplementedError(f"no value for {node.op!r}: add it to maskalg/engine/evaluate.py")
    return rule(node, env)


def narrowed(
    low: torch.Tensor,
    high: torch.Tensor,
    lows: Iterable[Node],
    highs: Iterable[Node],
    value: Callable[[Node], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The range from `low` to `high`, both included, cut to numbers of at least each of `lows` and
    at most each of `highs`; `value` evaluates one of these formulas."""
    low = reduce(torch.maximum, map(value, lows), low)
    return low, reduce(torch.minimum, map(value, highs), high)


def _long(node: Node, env: Environment, limbs: int) -> Long:
    """The exact value of an integer formula."""
    if node.op == "const":
        return longs.of_number(cast(int, node.data), limbs, env.device)
    if not _outgrows(node, env):
        return longs.of(evaluate(node, env), limbs)
    if node.op == "where":
        then, otherwise = (_long(arg, env, limbs) for arg in node.args[1:])
        return longs.where(evaluate(node.args[0], env), then, otherwise)
    return longs.computed(node.op, [_long(arg, env, limbs) for arg in node.args])


def _outgrows(node: Node, env: Environment) -> bool:
    """Whether an integer formula may leave 64 bits, at the positions and entries that are read."""
    return outgrows(node, env.values) and outgrows(node, *env.told)


def _operand(node: Node, env: Environment) -> torch.Tensor:
    """The value of a formula that is used as a real number."""
    if node.kind == "int" and _outgrows(node, env):
        return longs.real(_long(node, env, limbs(node, *env.told))).to(env.real)
    return evaluate(node, env)


def grid(
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


def kept_at(form: Bound, indices: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Whether a mask keeps the pairs at these indices, broadcast over those it depends on."""
    return evaluate(form.structure.mask, Environment(indices, form.values))


def kept_by_rows(form: Bound, extents: Extents) -> Iterator[tuple[int, torch.Tensor]]:
    """First query, and the pairs `[batch, heads, rows, kv_len]` from it on, some queries at a time.

    Batch and heads are 1 where the mask does not depend on them.
    """
    sizes, device = dependence(form.structure.mask, form, extents), device_of(form)
    step = max(_AT_ONCE // max(extents.kv_len * sizes.batch * sizes.heads, 1), 1)
    for first in range(0, extents.q_len, step):
        rows = (first, min(first + step, extents.q_len))
        kept = kept_at(form, grid(sizes.batch, sizes.heads, rows, (0, extents.kv_len), device))
        yield first, kept.expand(sizes.batch, sizes.heads, rows[1] - first, extents.kv_len)


def device_of(form: Bound) -> torch.device:
    """The device the tensors of an expression live on; the CPU when it has none."""
    return next((table.device for table in form.tables), torch.device("cpu"))


def _index(node: Node, env: Environment) -> torch.Tensor:
    if env.counting is not None and node.data == env.counting[0]:
        first, count = env.counting[1:]
        return torch.arange(first, first + count, device=env.device)
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
    found = _slice(table, node, env)
    if found is not None:
        return found
    indices = [
        evaluate(arg, env).clamp(0, max(table.shape[axis] - 1, 0))
        for axis, arg in enumerate(node.args)
    ]
    if table.numel() == 0:
        shape = np.broadcast_shapes(*[index.shape for index in indices])
        return table.new_zeros(shape)
    return table[tuple(indices)]


def _slice(table: torch.Tensor, node: Node, env: Environment) -> torch.Tensor | None:
    """The entries of a table at the counting index, as a slice; None where no slice serves."""
    last = node.args[-1]
    if env.counting is None or last.op != "index" or last.data != env.counting[0]:
        return None
    first, length = env.counting[1:]
    if first < 0 or first + length > table.shape[-1]:
        return None
    part = table.narrow(-1, first, length)
    lead = [evaluate(arg, env) for arg in node.args[:-1]]
    if not lead:
        return part
    if any(index.ndim == 0 or index.shape[-1] != 1 for index in lead) or part.numel() == 0:
        return None
    places = [index.squeeze(-1).clamp(0, table.shape[axis] - 1) for axis, index in enumerate(lead)]
    return part[tuple(places)]


def _extent(node: Node, env: Environment) -> torch.Tensor:
    table = cast(torch.Tensor, env.values[cast(Slot, node.own[0]).index])
    return torch.full((), table.shape[cast(int, node.data)], device=env.device)


def _step(node: Node, env: Environment) -> torch.Tensor:
    assert env.step is not None, "closed forms are evaluated with their step tables"
    return env.step(node, [evaluate(arg, env) for arg in node.args], env)


def _member(node: Node, env: Environment) -> torch.Tensor:
    assert env.step is not None, "closed forms are evaluated with their sets"
    return env.step(node, [evaluate(arg, env) for arg in node.args[1:]], env)


def _score(node: Node, env: Environment) -> torch.Tensor:
    assert env.score is not None, "a bias is evaluated at a score"
    return of_kept(env.score, env.kept)


def _opaque(node: Node, env: Environment) -> torch.Tensor:
    function = cast(Callable[..., torch.Tensor], node.data)
    return function(*[evaluate(arg, env) for arg in node.args])


def _fold(operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Rule:
    def rule(node: Node, env: Environment) -> torch.Tensor:
        real = node.kind == "real"
        parts = [(_operand if real else evaluate)(arg, env) for arg in in_order(node)]
        if not real:
            # Small operands first: vectors combine before they meet a matrix.
            parts.sort(key=lambda part: part.numel())
        result = parts[0]
        for part in parts[1:]:
            result = operation(result, part)
        return result

    return rule


_arranged: Final = lru_cache(maxsize=4096)(arranged)


def _compare(node: Node, env: Environment) -> torch.Tensor:
    kinds = {arg.kind for arg in node.args}
    if kinds == {"int"}:
        node = _arranged(node)
        if not compares_in_64(node, env.values) and not compares_in_64(node, *env.told):
            size = max(limbs(side, *env.told) for side in node.args)
            return longs.COMPARISONS[node.op](*[_long(side, env, size) for side in node.args])
    value = _operand if "real" in kinds else evaluate
    return COMPARISONS[node.op](*[value(side, env) for side in node.args])


def _of_two(
    operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *, whole: bool = False
) -> Rule:
    def rule(node: Node, env: Environment) -> torch.Tensor:
        left, right = ((evaluate if whole else _operand)(arg, env) for arg in node.args)
        # Divisors of integers are at least 1, except in a branch that is not taken.
        return operation(left, right.clamp(min=1) if whole else right)

    return rule


def _where(node: Node, env: Environment) -> torch.Tensor:
    chosen = evaluate(node.args[0], env)
    value = _operand if node.kind == "real" else evaluate
    then = value(node.args[1], replace(env, kept=within(env.kept, chosen)))
    otherwise = value(node.args[2], replace(env, kept=outside(env.kept, chosen)))
    return torch.where(chosen, then, otherwise)


def _call(node: Node, env: Environment) -> torch.Tensor:
    argument = _operand(node.args[0], env)
    if not argument.is_floating_point():
        argument = argument.to(env.real)
    return function_of(node).evaluated(argument)


def _power(node: Node, env: Environment) -> torch.Tensor:
    base, exponent = (_operand(arg, env) for arg in node.args)
    if not base.is_floating_point():
        base = base.to(env.real)
    return REALS["power"](base, exponent)


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
    **{name: _fold(row.evaluated) for name, row in OPERATIONS.items() if row.evaluated},
    "and": _fold(torch.logical_and),
    "or": _fold(torch.logical_or),
    "floordiv": _of_two(torch.floor_divide, whole=True),
    "mod": _of_two(torch.remainder, whole=True),
    "div": _of_two(REALS["divide"]),
    "pow": _power,
    "trunc": _trunc,
    "ge": _compare,
    "gt": _compare,
    "eq": _compare,
    "where": _where,
    "not": lambda node, env: ~evaluate(node.args[0], env),
    "call": _call,
}
