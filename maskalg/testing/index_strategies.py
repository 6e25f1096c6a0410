"""Random index expressions for hypothesis, and the masks their comparisons give."""

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

from .. import choice, elementary, index
from ..index import Index
from .case import BATCH, HEADS, Bools, Case, Ints, grid


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
        st.integers(0, 2).map(lambda n: IndexCase(n, lambda q, k, b, h: np.int64(n))),
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
        kept: Bools = np.broadcast_to(compare(a.values(*grid(*at)), b.values(*grid(*at))), shape)
        return kept

    return Case(compare(left, b.index), matrix)


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
        st.integers(-9, 20).map(lambda n: IndexCase(n, lambda q, k, b, h: np.int64(n))),
        st.builds(_scalar, st.integers(0, 20), st.sampled_from((None, 0, -5))),
        st.lists(st.integers(-5, 20), min_size=BATCH, max_size=BATCH).map(_per_batch),
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


def _scalar(value: int, low: int | None) -> IndexCase:
    return IndexCase(index.scalar(value, "n", low=low), lambda q, k, b, h: np.int64(value))


def _per_batch(values: list[int]) -> IndexCase:
    read = index.table(torch.tensor(values), "each")[index.batch]
    return IndexCase(read, lambda q, k, b, h: np.asarray(values)[b])


def _divisors() -> SearchStrategy[tuple[int | Index, int]]:
    """A number >= 1: literal, bound from outside, or an entry that is held at 1 from below."""
    number = st.integers(1, 5)
    return st.one_of(
        number.map(lambda n: (n, n)),
        number.map(lambda n: (index.scalar(n, "c", low=1), n)),
        st.integers(-2, 5).map(
            lambda n: (index.table(torch.tensor([n]), "c", low=1)[index.batch], max(n, 1))
        ),
    )


_ARITHMETIC: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "min": (elementary.minimum, np.minimum),
    "max": (elementary.maximum, np.maximum),
    "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, operator.floordiv),
    "%": (operator.mod, operator.mod),
}


def _arithmetic(sign: str, a: IndexCase, b: IndexCase) -> IndexCase:
    ours, theirs = _ARITHMETIC[sign]
    return IndexCase(ours(a.index, b.index), lambda *at: theirs(a.values(*at), b.values(*at)))


def _scaled(sign: str, a: IndexCase, by: tuple[int | Index, int]) -> IndexCase:
    ours, theirs = _ARITHMETIC[sign]
    factor, number = by
    scaled = ours(_expression(a.index), factor)
    return IndexCase(scaled, lambda *at: theirs(a.values(*at), np.int64(number)))


def _expression(value: Index | int) -> Index:
    """Numbers have no `//` by an expression: make them a constant expression."""
    return value if isinstance(value, Index) else 0 * index.q_idx + value


def _absolute(a: IndexCase) -> IndexCase:
    return IndexCase(abs(_expression(a.index)), lambda *at: np.abs(a.values(*at)))


def _chosen(sign: str, left: IndexCase, right: IndexCase, a: IndexCase, b: IndexCase) -> IndexCase:
    """`where(left < right, a, b)`, of numbers for each query, key, batch entry and head."""
    condition = _compared(sign, left, right).mask

    def values(*at: Ints) -> Any:
        holds = _COMPARISONS[sign](left.values(*at), right.values(*at))
        return np.where(holds, a.values(*at), b.values(*at))

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
    residue = st.integers(-1, 4).map(lambda n: IndexCase(n, lambda q, k, b, h: np.int64(n)))
    return st.builds(_compared, st.sampled_from(("==", "!=")), divided, residue)
