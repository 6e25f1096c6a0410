"""Random index expressions for hypothesis, and the masks their comparisons give.

Their numbers and entries are small, or lie at the ends of 32 and of 64 bits. The oracle computes
with Python's integers, which do not overflow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..values import choice, elementary, index
from ..values.by_hand import ENTRIES, Bools
from ..values.index import Index
from .case import BATCH, HEADS, Case, grid

EXTREMES: Final = (
    *(2**31 - 1, -(2**31), 2**31, 2**43, -(2**43), 2**59 - 1, 2**62, -(2**62)),
    *(2**63 - 2, 2**63 - 1, 1 - 2**63, -(2**63)),
)
"""Entries whose sums and products are likely to exceed 64 bits."""

_LARGE: Final = (2**31 - 1, 1 - 2**31, 2**30)
"""Numbers near the ends of 32 bits."""


@dataclass(frozen=True, eq=False)
class IndexCase:
    """An index expression (or a number), and its values over arrays of q, k, batch and head."""

    index: Index | int
    values: Callable[..., Any]


def conditions() -> SearchStrategy[Case]:
    """A comparison of the head or the batch index with a number: `head % 2 == 0`."""
    return st.builds(
        _compared,
        st.sampled_from(("==", "<", ">=")),
        st.sampled_from(
            (
                IndexCase(index.head, lambda q, k, b, h: h),
                IndexCase(index.batch, lambda q, k, b, h: b),
                IndexCase(index.head % 2, lambda q, k, b, h: h % 2),
            )
        ),
        st.integers(0, 2).map(_number),
    )


def comparisons(depth: int = 2) -> SearchStrategy[Case]:
    """Two index expressions compared: `abs(q_idx - kv_idx) % 3 <= kv_idx // 2`."""
    side = _indices(depth)
    return st.builds(_compared, st.sampled_from(tuple(_COMPARISONS)), side, side)


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge,
    ">": operator.gt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def _compared(sign: str, a: IndexCase, b: IndexCase) -> Case:
    compare = _COMPARISONS[sign]
    # Two numbers would compare to a plain bool.
    left = _expression(a.index)

    def matrix(*at: int) -> Bools:
        shape = (BATCH, HEADS, *at[:2])
        indices = _exact(*at)
        kept: Bools = np.broadcast_to(compare(a.values(*indices), b.values(*indices)), shape)
        return kept.astype(bool)

    return Case(compare(left, b.index), matrix)


def _exact(*at: int) -> tuple[Any, ...]:
    """The indices of `grid` as integers of Python."""
    return tuple(index.astype(object) for index in grid(*at))


def orders() -> SearchStrategy[Case]:
    """Entries of the query and of the key compared: `x[q_idx] + n < y[kv_idx]`."""
    entries = st.lists(_entries(), min_size=ENTRIES, max_size=ENTRIES)
    moved = st.one_of(st.integers(-2, 2), st.sampled_from(_LARGE))
    return st.builds(_ordered, st.sampled_from(tuple(_COMPARISONS)), entries, entries, moved)


def _ordered(sign: str, of_queries: list[int], of_keys: list[int], moved: int) -> Case:
    x, y = (index.table(torch.tensor(entries), "x") for entries in (of_queries, of_keys))
    left, right = (np.asarray(entries, dtype=object) for entries in (of_queries, of_keys))
    compare = _COMPARISONS[sign]

    def matrix(*at: int) -> Bools:
        q, k, _, _ = grid(*at)
        kept: Bools = compare(left[q] + moved, right[k]).astype(bool)
        return kept

    return Case(compare(x[index.q_idx] + moved, y[index.kv_idx]), matrix, over_positions=True)


def _entries() -> SearchStrategy[int]:
    return st.one_of(st.integers(-5, 20), st.sampled_from(EXTREMES))


@lru_cache(maxsize=8)
def _indices(depth: int) -> SearchStrategy[IndexCase]:
    q = IndexCase(index.q_idx, lambda q, k, b, h: q)
    k = IndexCase(index.kv_idx, lambda q, k, b, h: k)
    leaf = st.one_of(
        st.sampled_from(
            (
                q,
                k,
                IndexCase(index.q_idx - index.kv_idx, lambda q, k, b, h: q - k),
                IndexCase(index.head, lambda q, k, b, h: h),
                IndexCase(index.batch, lambda q, k, b, h: b),
            )
        ),
        st.integers(-9, 20).map(_number),
        st.builds(_scalar, st.integers(0, 20), st.sampled_from((None, 0, -5))),
        st.lists(st.integers(-5, 20), min_size=BATCH, max_size=BATCH).map(_per_batch),
        st.sampled_from(_LARGE).map(_number),
        st.lists(_entries(), min_size=BATCH, max_size=BATCH).map(_per_batch),
    )
    if depth == 0:
        return leaf
    inner = _indices(depth - 1)
    return st.one_of(
        leaf,
        st.builds(_arithmetic, st.sampled_from(("+", "-", "*", "min", "max")), inner, inner),
        st.builds(_scaled, st.sampled_from(("*", "//", "%")), inner, _divisors()),
        inner.map(_absolute),
        st.builds(_chosen, st.sampled_from(tuple(_COMPARISONS)), leaf, leaf, inner, inner),
    )


def _number(value: int) -> IndexCase:
    return IndexCase(value, lambda q, k, b, h: np.asarray(value, dtype=object))


def _scalar(value: int, low: int | None) -> IndexCase:
    return IndexCase(index.scalar(value, "n", low=low), _number(value).values)


def _per_batch(values: list[int]) -> IndexCase:
    read = index.table(torch.tensor(values), "each")[index.batch]
    return IndexCase(read, lambda q, k, b, h: np.asarray(values, dtype=object)[b.astype(int)])


def _divisors() -> SearchStrategy[tuple[int | Index, int]]:
    """A number >= 1: literal, bound from outside, or an entry with the lower bound 1."""
    number = st.one_of(st.integers(1, 5), st.sampled_from((2**20, 2**31 - 1)))
    return st.one_of(
        number.map(lambda n: (n, n)),
        number.map(lambda n: (index.scalar(n, "c", low=1), n)),
        st.one_of(st.integers(-2, 5), st.sampled_from(EXTREMES)).map(
            lambda n: (index.table(torch.tensor([n]), "c", low=1)[index.batch], max(n, 1))
        ),
    )


_ARITHMETIC: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "min": (elementary.minimum, lambda a, b: np.minimum(a, b, dtype=object)),
    "max": (elementary.maximum, lambda a, b: np.maximum(a, b, dtype=object)),
    "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, operator.floordiv),
    "%": (operator.mod, operator.mod),
}


def _arithmetic(sign: str, a: IndexCase, b: IndexCase) -> IndexCase:
    ours, theirs = _ARITHMETIC[sign]
    # Python numbers must fit 32 bits, results computed from them need not.
    found = ours(_expression(a.index), b.index)
    return IndexCase(found, lambda *at: theirs(a.values(*at), b.values(*at)))


def _scaled(sign: str, a: IndexCase, by: tuple[int | Index, int]) -> IndexCase:
    ours, theirs = _ARITHMETIC[sign]
    factor, number = by
    scaled = ours(_expression(a.index), factor)
    return IndexCase(scaled, lambda *at: theirs(a.values(*at), number))


def _expression(value: Index | int) -> Index:
    """Numbers have no `//` by an expression: make them a constant expression."""
    return value if isinstance(value, Index) else 0 * index.q_idx + value


def _absolute(a: IndexCase) -> IndexCase:
    return IndexCase(abs(_expression(a.index)), lambda *at: abs(a.values(*at)))


def _chosen(sign: str, left: IndexCase, right: IndexCase, a: IndexCase, b: IndexCase) -> IndexCase:
    """`where(left < right, a, b)`, of numbers for each query, key, batch entry and head."""
    condition = _compared(sign, left, right).mask

    def values(*at: Any) -> Any:
        holds = _COMPARISONS[sign](left.values(*at), right.values(*at))
        of_both = (np.asarray(case.values(*at), dtype=object) for case in (a, b))
        return np.where(np.asarray(holds, dtype=bool), *of_both)

    return IndexCase(choice.where(condition, _expression(a.index), _expression(b.index)), values)


def remainders() -> SearchStrategy[Case]:
    """`(q_idx - kv_idx + offset) % m == r`, either way round, equal or not."""
    distance = st.sampled_from(
        (
            IndexCase(index.q_idx - index.kv_idx, lambda q, k, b, h: q - k),
            IndexCase(index.kv_idx - index.q_idx, lambda q, k, b, h: k - q),
        )
    )
    moved = st.builds(_arithmetic, st.just("+"), distance, _indices(0))
    divided = st.builds(_scaled, st.just("%"), moved, _divisors())
    residue = st.integers(-1, 4).map(_number)
    return st.builds(_compared, st.sampled_from(("==", "!=")), divided, residue)
