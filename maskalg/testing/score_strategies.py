"""Random scores for hypothesis: masks, biases and caps, each with the oracle's matrix of it.

from hypothesis import given
from maskalg.testing import assert_attention_close
from maskalg.testing.score_strategies import BATCH, HEADS, scores, shapes

@given(scores(), shapes())
def test_my_kernel(case, shape):
    assert_attention_close(
        case.score, *shape.lengths, batch=BATCH, heads=HEADS, attend=my_attention
    )
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import torch

from ..values import biases as term
from ..values import choice, index
from ..values.algebra import Bias, Mask, Score
from ..values.by_hand import LONGEST, Floats
from . import oracle
from .assertions import describe
from .case import BATCH, HEADS, Case, grid

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

    from .strategies import Shape, masks, shapes
except ImportError as missing:
    raise ImportError(
        "maskalg.testing.score_strategies needs hypothesis: pip install 'maskalg[testing]'."
    ) from missing

__all__ = ["BATCH", "HEADS", "ScoreCase", "Shape", "additive", "biases", "scores", "shapes"]

Rule = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class ScoreCase:
    """A bias or a score, and the same in the oracle, as a function of scaled scores.

    Attributes:
        score: the expression; its tensors are float64 and require a gradient.
        apply: from float64 scores `[BATCH, HEADS, q_len, kv_len]` to the new ones, -inf where
            dropped.
    """

    score: Bias | Score | Mask
    apply: Rule

    def __repr__(self) -> str:
        return f"ScoreCase({describe(self.score)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints a failing case."""
        printer.text(repr(self))


def scores(depth: int = 2) -> SearchStrategy[ScoreCase]:
    """A mask, a bias, or both: `mask + bias`, each of them composed up to `depth` times."""
    return st.one_of(
        masks(depth).map(_masked),
        biases(depth),
        st.builds(_both, masks(depth), biases(depth)),
    )


def biases(depth: int = 2) -> SearchStrategy[ScoreCase]:
    """Sums, multiples, compositions (`@`) and choices of biases and caps, without a mask."""
    return _biases(depth)


@lru_cache(maxsize=8)
def _biases(depth: int) -> SearchStrategy[ScoreCase]:
    if depth == 0:
        return st.one_of(additive(), _caps())
    inner = _biases(depth - 1)
    return st.one_of(
        inner,
        st.builds(_sum, inner, inner),
        st.builds(_scaled, additive(), st.sampled_from((2.0, -0.5))),
        st.builds(_composed, inner, inner),
        st.builds(_chosen, masks(0), inner, st.one_of(inner, st.sampled_from((0, 1.5)))),
    )


# --- composition ---------------------------------------------------------------------------------


def _masked(case: Case) -> ScoreCase:
    def apply(s: Floats) -> Floats:
        return np.where(case.dense(*s.shape[2:]), s, -np.inf)

    return ScoreCase(case.mask, apply)


def _both(case: Case, bias: ScoreCase) -> ScoreCase:
    return ScoreCase(
        operator.add(case.mask, bias.score), lambda s: _masked(case).apply(bias.apply(s))
    )


def _sum(a: ScoreCase, b: ScoreCase) -> ScoreCase:
    return ScoreCase(operator.add(a.score, b.score), lambda s: a.apply(s) + b.apply(s) - s)


def _scaled(a: ScoreCase, factor: float) -> ScoreCase:
    scaled = operator.mul(a.score, factor)
    return ScoreCase(scaled, lambda s: s + factor * (a.apply(s) - s))


def _composed(a: ScoreCase, b: ScoreCase) -> ScoreCase:
    return ScoreCase(operator.matmul(a.score, b.score), lambda s: a.apply(b.apply(s)))


def _chosen(condition: Case, a: ScoreCase, b: ScoreCase | float) -> ScoreCase:
    other = cast(Bias, b.score) if isinstance(b, ScoreCase) else b

    def apply(s: Floats) -> Floats:
        rest = b.apply(s) if isinstance(b, ScoreCase) else s + b
        return np.where(condition.dense(*s.shape[2:]), a.apply(s), rest)

    return ScoreCase(choice.where(condition.mask, cast(Bias, a.score), other), apply)


# --- atoms ---------------------------------------------------------------------------------------

_ADDITIVE: Final[dict[str, tuple[Callable[..., Bias], Callable[..., Floats], tuple[int, ...]]]] = {
    "alibi": (term.alibi, oracle.alibi, (HEADS,)),
    "relative": (term.relative, oracle.relative, (HEADS, 9)),
    "key bias": (term.key_bias, oracle.key_bias, (LONGEST,)),
    "key bias per batch": (term.key_bias, oracle.key_bias, (BATCH, 1, LONGEST)),
    "pairs": (term.dense_bias, oracle.dense_bias, (HEADS, LONGEST, LONGEST)),
    "T5": (
        lambda table: term.t5(table, bidirectional=False, max_distance=9),
        lambda table, **at: oracle.t5(table, False, 9, **at),
        (8, HEADS),
    ),
}


@st.composite
def additive(draw: DrawFn) -> ScoreCase:
    """One bias that adds to the score: of distances, keys, pairs, or a formula of indices."""
    kind = draw(st.sampled_from(("formula", *_ADDITIVE)))
    if kind == "formula":
        slope = draw(st.sampled_from((0.5, -0.25)))
        bias = index.bias(slope * abs(index.q_idx - index.kv_idx))
        return ScoreCase(bias, lambda s: s + slope * _distances(*s.shape[2:]))
    build, added, shape = _ADDITIVE[kind]
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    table = random.normal(size=shape)
    tensor = torch.from_numpy(table.copy()).requires_grad_()

    def apply(s: Floats) -> Floats:
        return s + added(table, q_len=s.shape[2], kv_len=s.shape[3])

    return ScoreCase(build(tensor), apply)


def _distances(q_len: int, kv_len: int) -> Any:
    q, k, _, _ = grid(q_len, kv_len, 0, 0)
    return np.abs(q - k)


def _caps() -> SearchStrategy[ScoreCase]:
    """`softcap` of a few limits."""
    return st.sampled_from((3.0, 20.0)).map(
        lambda cap: ScoreCase(term.softcap(cap), lambda s: cap * np.tanh(s / cap))
    )
