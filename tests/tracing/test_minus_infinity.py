"""Scores that are -inf somewhere: which become masks, their values, and what is said of others."""

import pytest
import torch

import maskalg as ma

N, H, INF = 12, 2, float("inf")
Q, K = torch.arange(N)[:, None], torch.arange(N)[None, :]
HEADS = torch.arange(H)[:, None, None]
SLOPES = torch.tensor([0.5, -0.25], dtype=torch.float64)
LEAST = torch.tensor(-INF)


def causal(s, b, h, i, j):
    return torch.where(i >= j, s, -INF)


def near(s, b, h, i, j):
    return torch.where(i - j < 5, s, -INF)


def alibi(s, b, h, i, j):
    return s + SLOPES[h] * (j - i)


def chained(*functions):
    def score_mod(s, b, h, i, j):
        for function in functions:
            s = function(s, b, h, i, j)
        return s

    return score_mod


SPLIT = {
    "below a sum": chained(causal, alibi),
    "between": chained(alibi, causal, alibi, near, alibi),
    "captured tensor": lambda s, b, h, i, j: torch.where(i >= j, s, LEAST),
    "tensor": lambda s, b, h, i, j: torch.where(i >= j, s, torch.tensor(-INF)),
    "added": lambda s, b, h, i, j: s + torch.where(i >= j, 0.0, -INF),
    "added tensor": lambda s, b, h, i, j: s + torch.where(i >= j, 0.0, LEAST) + i,
    "times": lambda s, b, h, i, j: s + torch.where(i >= j, 0.5 * j, -INF) * 2.0 + 1,
    "divided": lambda s, b, h, i, j: torch.where(i >= j, s, -INF) / 2,
    "minimum": lambda s, b, h, i, j: torch.minimum(s, torch.where(i >= j, 0.1, -INF)),
    "both branches": lambda s, b, h, i, j: torch.where(
        h == 0, causal(s, b, h, i, j), near(s, b, h, i, j) - 1
    ),
    "negated": lambda s, b, h, i, j: torch.where(i < j, -INF, s) + torch.tanh(s),
    "filled": lambda s, b, h, i, j: s.masked_fill(i < j, -INF) - SLOPES[h],
}
LEFT = {
    "capped": lambda s, b, h, i, j: 3 * torch.tanh(causal(s, b, h, i, j) / 3),
    "of the score": lambda s, b, h, i, j: torch.where(s > 0, s, -INF) + i,
    "negative factor": lambda s, b, h, i, j: s + torch.where(i >= j, 0.0, -INF) * -1.0,
    "maximum": lambda s, b, h, i, j: torch.maximum(causal(s, b, h, i, j), -torch.ones_like(s)),
    "not finite": lambda s, b, h, i, j: causal(s, b, h, i, j) + 1.0 / (i - j + 0.5),
    "large": lambda s, b, h, i, j: torch.where(i >= j, s, -1e9) + i,
    "least": lambda s, b, h, i, j: torch.where(i >= j, s, torch.finfo(torch.float16).min),
    "factor": lambda s, b, h, i, j: s + (1.0 - (i >= j).float()) * -1e9,
}


def dense(score_mod, scores):
    return score_mod(scores, 0, HEADS, Q, K)


@pytest.mark.parametrize("name", [*SPLIT, *(name for name in LEFT if name != "negative factor")])
def test_values_and_gradients_are_those_of_the_function(name):
    score_mod = {**SPLIT, **LEFT}[name]
    q, k, v = (torch.randn(1, H, N, 8, dtype=torch.float64) for _ in range(3))
    q.requires_grad_()
    want = dense(score_mod, q @ k.mT / 8**0.5).softmax(-1).nan_to_num(0.0) @ v
    wanted = torch.autograd.grad(want.square().sum(), q)[0].nan_to_num(0.0)
    for backend in ("reference", "cpu"):
        got = ma.attention(q, k, v, ma.score(score_mod), backend=backend)
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        found = torch.autograd.grad(got.square().sum(), q)[0]
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", list(SPLIT))
def test_what_is_split_keeps_what_the_function_keeps(name):
    found = ma.score(SPLIT[name])
    assert isinstance(found, ma.Score)
    kept = dense(SPLIT[name], torch.zeros(1, H, N, N, dtype=torch.float64)) > -INF
    assert torch.equal(found.mask.to_dense(N, heads=H).expand(1, H, N, N), kept)
    q = torch.randn(1, H, N, 8)
    assert "under a condition" not in ma.explain(q, q, q, found).bias


@pytest.mark.parametrize("name", list(LEFT))
def test_what_is_not_split_is_said(name):
    found = ma.score(LEFT[name])
    assert isinstance(found, ma.Bias)
    q = torch.randn(1, H, N, 8)
    said = ma.explain(q, q, q, found).bias
    assert "under a condition, which skips no tile: write mask + bias" in said


@pytest.mark.parametrize("bias", [ma.alibi(SLOPES), ma.softcap(30.0), ma.causal, ma.bias(1.0)])
def test_nothing_is_said_of_others(bias):
    q = torch.randn(1, H, N, 8)
    assert "under a condition" not in ma.explain(q, q, q, bias).bias


def test_another_number_in_the_place_of_minus_infinity():
    def made(least):
        return ma.score(lambda s, b, h, i, j: torch.where(i >= j, s, least))

    for amount in (-INF, -2.0, -INF):
        score = made(torch.tensor(amount))
        assert isinstance(score, ma.Score if amount == -INF else ma.Bias)


def test_a_mask_and_a_score_that_holds_one():
    score = ma.score(SPLIT["below a sum"])
    both = ma.sliding(3) + score
    assert isinstance(both, ma.Score) and both == ma.sliding(3) & score
    q = torch.randn(1, H, N, 8, dtype=torch.float64)
    want = ma.attention(q, q, q, ma.causal & ma.sliding(3) + ma.alibi(SLOPES))
    torch.testing.assert_close(ma.attention(q, q, q, both), want)
