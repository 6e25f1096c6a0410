"""Checks that the tensors of an expression fit the lengths, the batch and the heads of a call.

Table indices are bounded by interval arithmetic on the formula, so that a shift or a chunk number
is checked like a plain position. An index that depends on another tensor, or in which a position
occurs twice, is not bounded here; it is clamped to the table when read.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import torch

from .. import errors
from ..formula import nodes
from ..formula.derived import documents_in
from ..formula.meaning import RULES, Interval
from ..formula.nodes import Node
from ..formula.parameters import INTEGERS, Slot, plain_number
from ..formula.printing import formula_text
from ..formula.separation import positions
from . import messages
from .normal_form import Bound, Structure, Value

MOST_OF_ENTRY: Final = 2**30
"""Kernels that compute in 32 bits clamp entries to this size, which all other sums stay below."""

_MOST_HEADS: Final = 256
"""The most key heads that models have. More heads than this, and than keys, look transposed."""

_ROWS: Final = ("batch", "head")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Extents:
    """Lengths, batch size and query heads of one call."""

    q_len: int
    kv_len: int
    batch: int
    heads: int

    @property
    def sizes(self) -> dict[str, int]:
        """How many values each index of a formula takes."""
        lengths = {"q_idx": self.q_len, "kv_idx": self.kv_len}
        return {**lengths, "batch": self.batch, "head": self.heads}


@dataclass(frozen=True)
class Dependence:
    """How many batch entries and heads an expression distinguishes: 1 where it does not."""

    batch: int
    heads: int


@dataclass(frozen=True)
class Lengths:
    """Lengths as a user gives them.

    A `kv_len` of None means `q_len`; a `batch` or `heads` of None is read off the tensors. Without
    `q_len`, a question about masks ranges over every position.
    """

    q_len: int | None = None
    kv_len: int | None = None
    batch: int | None = None
    heads: int | None = None


def longest(fits: Callable[[int], bool], most: int) -> int:
    """The largest length up to `most` that fits, where shorter ones do too."""
    if fits(most):
        return most
    return bisect_left(range(1, most), True, key=lambda length: not fits(length))


def resolve(bound: Bound, given: Lengths) -> Extents:
    """The extents of a call, with batch and heads inferred from the tables where not given.

    Raises:
        ValueError: negative lengths, tables that do not fit, or a number of batch entries or heads
            that is neither given nor read off a table.
    """
    q_len, kv_len, batch, heads = map(
        plain_number, (given.q_len, given.kv_len, given.batch, given.heads)
    )
    for name, value in (("q_len", q_len), ("kv_len", kv_len), ("batch", batch), ("heads", heads)):
        required = name == "q_len"
        if (value is None and not required) or (_is_integer(value) and cast(int, value) >= 0):
            continue
        raise errors.MaskValueError(f"{name} must be an integer >= 0, got {value!r}.")
    sizes = _sizes(bound)
    batch = _told(bound, sizes, "batch") if batch is None else batch
    heads = _told(bound, sizes, "head") if heads is None else heads
    extents = Extents(q_len, q_len if kv_len is None else kv_len, batch, heads)
    check(bound, extents)
    return extents


def _told(bound: Bound, sizes: dict[str, list[int]], index: str) -> int:
    """The number of batch entries, or heads, from the tables; 1 if nothing depends on them."""
    if is_untold(bound, index):
        given = "heads" if index == "head" else index
        raise errors.MaskValueError(
            f"the expression depends on `{index}`, and no table tells how many: pass {given}=…."
        )
    return max(sizes[index], default=1)


def fitting(query: Shape, key: Shape, value: Shape) -> Extents:
    """The extents of inputs of these shapes; raises where they do not fit together."""
    if torch.compiler.is_dynamo_compiling():
        return _fitting(query, key, value)
    try:
        return _remembered(query, key, value)
    except TypeError:  # the symbolic sizes of a trace cannot be looked up
        return _fitting(query, key, value)


def _fitting(query: Shape, key: Shape, value: Shape) -> Extents:
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) != 4:
            missing = {3: "[None] for one sequence", 2: "[None, None] for one head of one sequence"}
            write = f" Write {name}{missing[len(shape)]}." if len(shape) in missing else ""
            raise errors.MaskValueError(
                f"attention: {name} must have shape [batch, heads, length, head_dim], got "
                f"{list(shape)}.{write}"
            )
    (batch, heads, q_len, _), (_, _, kv_len, _) = query, key
    wrong = _misfit(query, key, value)
    if wrong is not None:
        swapped = [(b, length, h, d) for b, h, length, d in (query, key, value)]
        # In the other layout there are more keys than heads.
        turned = key[1] > kv_len and _misfit(*swapped) is None
        fits = f" They fit as [batch, length, heads, dim]: {messages.TURN}"
        raise errors.MaskValueError(
            f"attention: {wrong}; got query {list(query)}, key {list(key)}, value {list(value)}."
            f"{fits if turned else ''}"
        )
    return Extents(q_len, kv_len, batch, heads)


def _misfit(query: Shape, key: Shape, value: Shape) -> str | None:
    """Why inputs of four dimensions do not fit together; None if they do."""
    (batch, heads, _, dim), (key_batch, kv_heads, kv_len, key_dim) = query, key
    wrong = None
    if not batch == key_batch == value[0]:
        wrong = "the batch sizes differ (write one entry for all as x.expand(batch, -1, -1, -1))"
    elif kv_heads == 0:
        wrong = "the key has no heads (write at least one)"
    elif kv_heads != value[1]:
        wrong = "key and value have different numbers of heads"
    elif heads % kv_heads:
        wrong = f"{heads} query heads are no multiple of {kv_heads} key-value heads"
    elif kv_len != value[2]:
        wrong = "key and value have different lengths"
    elif dim != key_dim:
        wrong = "query and key have different head dimensions"
    return wrong


@lru_cache(maxsize=4096)
def _remembered(query: Shape, key: Shape, value: Shape) -> Extents:
    extents = _fitting(query, key, value)
    kv_heads, kv_len = key[1:3]
    if kv_heads > max(_MOST_HEADS, kv_len):
        warnings.warn(messages.many_heads(query, key), stacklevel=6)
    return extents


def check(bound: Bound, extents: Extents) -> None:
    """Raise `ValueError` when a table is too short, or has another batch or number of heads."""
    sizes = extents.sizes
    for slot, axis, index in bound.structure.table_indices:
        table: Any = bound.values[slot.index]  # of any type for speed: a cast is a call
        name: Any = index.data
        size: int = table.shape[axis]
        if index.op != "index":
            _check_computed(bound, extents, (slot, axis, index), size)
            continue
        found = sizes[name]
        if name in ("batch", "head"):
            if size not in (1, found):
                shape = _table_shape(bound, slot)
                raise messages.table_extent(slot.name, shape, axis, found, name)
        elif size < found:
            raise _too_short(bound, extents, (slot, axis), found)


def _check_computed(
    bound: Bound, extents: Extents, place: tuple[Slot, int, Node], size: int
) -> None:
    """Check an index that is computed from others, as far as its limits are known."""
    slot, axis, index = place
    limits = bounds_of(index, extents, bound.values)
    if limits is None or limits[1] < limits[0] or _repeats(index):
        return
    if (limits[0] < 0 or limits[1] >= size) and _reads_own_length(index, slot):
        shape = _table_shape(bound, slot)
        raise messages.table_of_distances(slot.name, shape, _call(extents))
    if limits[0] < 0 and not is_kept_from_zero(bound.structure, slot, index):
        raise errors.MaskValueError(
            f"{slot.name} would be read at {formula_text(index)} = {limits[0]}, before its first "
            f"entry. If the mask drops those pairs, write maximum({formula_text(index)}, 0) there. "
            "Else shift less far back, or pass a longer tensor and shift it: indices start at 0."
        )
    if limits[1] >= size:
        raise _too_short(bound, extents, (slot, axis), limits[1] + 1)


def _reads_own_length(index: Node, slot: Slot) -> bool:
    """Whether an index counts from the middle of its table, as an index by distance does."""
    return any(part.op == "extent" and part.own[0] == slot for part in index.walk())


def _call(extents: Extents) -> str:
    return f"the call (q_len {extents.q_len}, kv_len {extents.kv_len})"


def _too_short(
    bound: Bound, extents: Extents, place: tuple[Slot, int], needed: int
) -> errors.MaskValueError:
    slot, axis = place
    packed = documents_in(cast(torch.Tensor, bound.values[slot.index])) is not None
    shape = _table_shape(bound, slot)
    return messages.table_too_short(slot.name, shape, axis, needed, _call(extents), packed)


def _table_shape(bound: Bound, slot: Slot) -> tuple[int, ...]:
    return tuple(cast(torch.Tensor, bound.values[slot.index]).shape)


def is_bounded(index: Node) -> bool:
    """Whether the limits of a table's index are checked: a formula of positions, each read once."""
    plain = index.op == "index" or _repeats(index) or not positions(index)
    return not plain and all(part.op not in ("read", "trunc", "opaque") for part in index.walk())


def is_kept_from_zero(structure: Structure, slot: Slot, index: Node) -> bool:
    """Whether entries of a table at a negative `index` do not matter, since `index >= 0` is joined
    to them by `&`, as `at` does; for those of a bias, joined to the whole mask."""
    mask, bias = structure.mask, structure.bias
    if any(_is_from_zero(part, index) for part in (mask.args if mask.op == "and" else (mask,))):
        return True
    return not (_reads_below_zero(mask, slot, index) or _reads_below_zero(bias, slot, index))


def _reads_below_zero(node: Node, slot: Slot, index: Node) -> bool:
    """Whether an entry of a table at a negative `index` may decide the value of a formula."""
    if node.op == "and" and any(_is_from_zero(part, index) for part in node.args):
        return False
    if node.op == "read" and node.own[0] == slot and index in node.args:
        return True
    return any(_reads_below_zero(part, slot, index) for part in node.args)


def _is_from_zero(node: Node, index: Node) -> bool:
    """Whether a condition says that `index`, or its dividend, is not negative."""
    if node.op == "ge" and node.args == (index, nodes.const(0)):
        return True
    # Divisors are 1 or more.
    return index.op == "floordiv" and _is_from_zero(node, index.args[0])


def _repeats(index: Node) -> bool:
    """Whether an index occurs twice, so that the extremes found may never occur together."""
    names = [node.data for node in index.walk() if node.op == "index"]
    return len(names) != len(set(names))


def dependence(mask: Node, bound: Bound, extents: Extents) -> Dependence:
    """How many batch entries and heads `mask` distinguishes with the values bound to it."""
    if mask.indices().isdisjoint(_ROWS):
        return Dependence(1, 1)
    outside, reads = _rows_told(mask)
    sizes = {name: extents.sizes[name] if name in outside else 1 for name in _ROWS}
    for slot, axis, name in reads:
        if name not in outside:
            table: Any = bound.values[slot]
            if table.shape[axis] != 1:
                sizes[name] = table.shape[axis]
    return Dependence(sizes["batch"], sizes["head"])


@lru_cache(maxsize=4096)
def _rows_told(mask: Node) -> tuple[frozenset[str], tuple[tuple[int, int, str], ...]]:
    """Which of batch and head occur elsewhere than as a table's index; and where they are one, by
    slot, dimension and name."""
    reads = [
        (cast(Slot, node.own[0]).index, axis, index.data)
        for node in mask.walk()
        if node.op == "read"
        for axis, index in enumerate(node.args)
        if index.op == "index" and index.data in _ROWS
    ]
    told = Counter(name for _, _, name in reads)
    found = Counter(node.data for node in mask.walk() if node.op == "index")
    return frozenset(name for name in _ROWS if found[name] > told[name]), tuple(reads)


def is_untold(bound: Bound, index: str) -> bool:
    """Whether the tables leave open how many batch entries, or heads, a formula distinguishes.

    A table with one entry along that dimension fits any number of them, so it does not tell.
    """
    if not bound.structure.depends_on(index):
        return False
    formulas = (bound.structure.mask, bound.structure.bias)
    total = sum(n.op == "index" and n.data == index for f in formulas for n in f.walk())
    sizes = _sizes(bound)[index]
    return total > len(sizes) and max(sizes, default=1) == 1


def bounds_of(node: Node, extents: Extents, values: tuple[Value, ...]) -> Interval | None:
    """Smallest and largest value of an integer formula, or None where a tensor decides."""
    if node.op == "index":
        return 0, extents.sizes[cast(str, node.data)] - 1
    if node.op == "const":
        return cast(int, node.data), cast(int, node.data)
    if node.op == "scalar":
        value = cast(int, values[cast(Slot, node.own[0]).index])
        return value, value
    if node.op == "extent":
        size = _shape(values, node)[cast(int, node.data)]
        return size, size
    rule = RULES.get(node.op)
    if rule is None:
        return None
    parts = [bounds_of(arg, extents, values) for arg in node.args]
    if any(part is None for part in parts):
        return None
    known = cast("list[Interval]", parts)
    if any(high < low for low, high in known):
        return 0, -1
    return rule(known)


def _shape(values: tuple[Value, ...], node: Node) -> tuple[int, ...]:
    value = values[cast(Slot, node.own[0]).index]
    return tuple(cast("tuple[int, ...]", value.shape))  # type: ignore[union-attr]


def _sizes(bound: Bound) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {"batch": [], "head": []}
    for node in bound.structure.reads:
        for axis, index in enumerate(node.args):
            if index.op == "index" and index.data in sizes:
                sizes[index.data].append(_shape(bound.values, node)[axis])
    return sizes


def _is_integer(value: object) -> bool:
    return isinstance(value, INTEGERS) and not isinstance(value, bool)


def fits_int32(bound: Bound, extents: Extents) -> bool:
    """Whether index arithmetic of the call stays well within 32 bits.

    True if lengths, batch, heads, numbers, constants and products add up to less than 2**31, each
    counted as often as the formula adds it; otherwise kernels compute in 64 bits. If the formula
    adds entries of tensors or truncated numbers, which may have any size, the sum must stay below
    `MOST_OF_ENTRY`.
    """
    structure = bound.structure
    total = extents.q_len + extents.kv_len + extents.batch + extents.heads
    total += 2 * bound.sum_of_integers
    total = structure.repeats * total + 4096 + structure.constants
    most = MOST_OF_ENTRY if structure.reads or structure.truncates else 2**31
    if total >= most or not structure.multiplies:
        return total < most
    products = _products(bound, extents)
    return products is not None and total + structure.repeats * products < most


def distances_are_short(bound: Bound, extents: Extents) -> bool:
    """Whether sums of positions and numbers stay below 2**22, which real numbers hold exactly."""
    most = max(extents.q_len, extents.kv_len) + bound.sum_of_integers + bound.structure.constants
    return most <= 2**22


def _products(bound: Bound, extents: Extents) -> int | None:
    """The largest sum of the products of a formula; None where a tensor decides."""
    total = 0
    for formula in (bound.structure.mask, bound.structure.bias):
        for node in formula.walk():
            if node.op != "mul" or node.kind != "int":
                continue
            limits = bounds_of(node, extents, bound.values)
            if limits is None:
                return None
            total += max(-limits[0], limits[1])
    return total
