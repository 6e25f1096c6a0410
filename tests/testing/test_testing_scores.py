"""`assert_attention_close`, and random scores with the oracle's matrix of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import maskalg as ma
from maskalg import alibi, causal, document, sliding, softcap
from maskalg.backends.call import scale_of
from maskalg.testing import assert_attention_close
from maskalg.testing.score_strategies import BATCH, HEADS, ScoreCase, Shape, scores, shapes
from maskalg.tracing.pointwise import pointwise

IDS = torch.arange(40) // 9


@settings(max_examples=25)
@given(scores(depth=1), shapes())
def test_random_scores_are_what_the_oracle_says(case: ScoreCase, shape: Shape) -> None:
    q_len, kv_len = shape.lengths
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, n, 4).double() for n in (q_len, kv_len, kv_len))
    s = case.apply((q @ k.mT * scale_of(q, None)).numpy())
    assert s.shape == (BATCH, HEADS, q_len, kv_len)
    with np.errstate(invalid="ignore"):
        weights = np.exp(s - s.max(axis=-1, keepdims=True))
        wanted = np.nan_to_num(weights / weights.sum(axis=-1, keepdims=True)) @ v.numpy()
    found = ma.attention(q, k, v, case.score, backend="reference").detach()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    if not isinstance(case.score, ma.Mask):
        scaled = q @ k.mT * scale_of(q, None)
        views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
        grid = [torch.arange(n).view(v) for n, v in zip(scaled.shape, views, strict=True)]
        in_flex = pointwise(case.score.to_score_mod(), scaled, *grid).detach()
        np.testing.assert_allclose(in_flex, s, rtol=2e-5, atol=2e-5)


@settings(max_examples=10)
@given(scores(depth=1), shapes())
def test_the_cpu_backend_agrees(case: ScoreCase, shape: Shape) -> None:
    assert_attention_close(
        case.score, *shape.lengths, batch=BATCH, heads=HEADS, dtype=torch.float64, backend="cpu"
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype(dtype: torch.dtype) -> None:
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0], requires_grad=True)
    score = causal & sliding(9) & document(IDS) + softcap(4.0) @ alibi(slopes)
    found = assert_attention_close(score, 33, 40, kv_heads=2, value_dim=8, dtype=dtype)
    assert list(found.errors) == [
        "output",
        "gradient of query",
        "gradient of key",
        "gradient of value",
        "gradient of slopes",
    ]
    assert 0 < found.worst < 1e-2 or dtype == torch.bfloat16


def test_no_score_and_empty_rows() -> None:
    assert assert_attention_close(None, 17).worst < 1e-5
    assert assert_attention_close(ma.nothing, 9).worst == 0
    assert assert_attention_close(causal, 0, 3).worst == 0


def test_wrong_kernels_are_found() -> None:
    def too_far(q, k, v, score):
        return ma.attention(q, k, v, sliding(4))

    def no_number(q, k, v, score):
        return ma.attention(q, k, v, score) * torch.nan

    def wrong_gradient(q, k, v, score):
        return ma.attention(q, k.detach(), v, score)

    def wrong_shape(q, k, v, score):
        return ma.attention(q, k, v, score).mT

    for attend, says in (
        (too_far, "output"),
        (no_number, "output: inf"),
        (wrong_gradient, "gradient of key"),
    ):
        with pytest.raises(AssertionError, match=says) as caught:
            assert_attention_close(sliding(3), 12, attend=attend)
        assert "sliding(3)\n  window = 3\nq_len=12, kv_len=12" in str(caught.value)
    with pytest.raises(AssertionError, match=r"shape \[2, 4, 16, 12\]"):
        assert_attention_close(sliding(3), 12, attend=wrong_shape)
    with pytest.raises(AssertionError, match="at most 1e-15"):
        assert_attention_close(sliding(3), 12, tolerance=1e-15)
