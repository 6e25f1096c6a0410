"""Traced score functions: their values, their masks, attention with them and its gradients."""

import pytest
import torch
from flex_scores import B, H, N, scores

import maskalg as ma
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.tracing.pointwise import pointwise

GRID = [
    torch.arange(n).view(view)
    for n, view in zip(
        (B, H, N, N),
        [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)],
        strict=True,
    )
]
NAMES = ("batch", "head", "q_idx", "kv_idx")


def value(expression, score):
    """The score after mask and bias of a traced function."""
    form = bound(expression)
    env = Environment(dict(zip(NAMES, GRID, strict=True)), form.values, score)
    kept = evaluate(form.structure.mask, env)
    return torch.where(kept, evaluate(form.structure.bias, env), float("-inf"))


@pytest.mark.parametrize("name", list(scores()))
def test_traced_score_is_the_function(name):
    function = scores()[name]
    score = 2 * torch.randn(B, H, N, N)
    want = pointwise(function, score, *GRID)
    got = value(ma.score(function), score).expand_as(score)
    torch.testing.assert_close(got, want.to(got.dtype), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["trigonometric", "softcap", "paths", "buckets", "gelu"])
def test_attention_and_gradients(name):
    """The CPU backend against autograd through the function itself."""
    function = scores()[name]
    q, k, v = (torch.randn(B, H, N, 8, dtype=torch.float64) for _ in range(3))
    q.requires_grad_()
    got = ma.attention(q, k, v, ma.causal & ma.everything + ma.score(function), backend="cpu")
    (slope,) = torch.autograd.grad(got.square().sum(), q)
    s = pointwise(function, q @ k.mT / 8**0.5, *GRID)
    s = s.masked_fill(GRID[2] < GRID[3], float("-inf"))
    want = s.softmax(-1) @ v
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope, torch.autograd.grad(want.square().sum(), q)[0])


def test_captured_tables_get_gradients():
    slopes = torch.rand(H, dtype=torch.float64, requires_grad=True)
    bias = ma.score(lambda s, b, h, q, k: s + slopes[h] * (k - q))
    q = torch.randn(1, H, 9, 8, dtype=torch.float64)

    def run(slopes):
        return ma.attention(q, q, q, bias.bind(slopes=slopes), backend="cpu")

    assert torch.autograd.gradcheck(run, slopes)
    assert (run(slopes) == ma.attention(q, q, q, ma.alibi(slopes), backend="cpu")).all()


def test_minus_infinity_is_a_mask():
    found = ma.score(scores()["relative-causal"])
    assert isinstance(found, ma.Score)
    assert found.mask_node == ma.causal.mask_node and found.mask.prove().exact
    twice = ma.score(scores()["dropped-twice"])
    want = ma.sliding(9) & ~(ma.kv_idx % 2 == 1)
    assert (twice.mask.to_dense(N) == want.to_dense(N)).all()


def test_a_score_that_depends_on_itself_keeps_its_condition():
    found = ma.score(lambda s, b, h, q, k: torch.where(s > 0, s, -float("inf")))
    assert isinstance(found, ma.Bias)


def test_numbers_of_scores_are_bound_anew():
    cap = ma.score(scores()["softcap"])
    assert cap.parameters == {"cap": 3}
    score = torch.randn(B, H, N, N)
    assert torch.equal(value(cap.bind(cap=5), score), value(ma.softcap(5.0), score))
    assert bound(cap).structure is bound(cap.bind(cap=7)).structure


def test_a_row_of_64_products():
    left, right = torch.randn(N, 64), torch.randn(N, 64)
    bias = ma.score(lambda s, b, h, q, k: s + torch.dot(left[q], right[k]))
    got = value(bias, torch.zeros(B, H, N, N))
    torch.testing.assert_close(got[0, 0], left @ right.T, rtol=1e-5, atol=1e-5)


def test_opaque_scores_compute_and_differentiate():
    table = torch.randn(N, dtype=torch.float64)

    def score_mod(s, b, h, q, k):
        return torch.lgamma(s.abs() + 1) + table[k] * h

    with pytest.raises(ma.MaskTypeError, match=r"torch\.lgamma\(…\) has no formula"):
        ma.score(score_mod)
    bias = ma.score(score_mod, opaque=True)
    inputs = [torch.randn(B, H, N, 8, dtype=torch.float64).requires_grad_() for _ in range(2)]
    for x in inputs:
        outs = [
            ma.attention(x, x, x, ma.causal + bias, backend=name) for name in ("cpu", "reference")
        ]
        slopes = [torch.autograd.grad(out.square().sum(), x)[0] for out in outs]
        torch.testing.assert_close(*outs)
        torch.testing.assert_close(*slopes)
    with pytest.raises(ma.BackendError, match="Write it as a formula"):
        ma.render(ma.everything + bias)


@pytest.mark.parametrize(
    "name, limited",
    {
        "relu": torch.relu,
        "clamp": lambda x: x.clamp(min=0),
        "clamp at most": lambda x: torch.clamp(x, max=0.0),
        "both": lambda x: torch.clamp(x, 0, 1),
        "clamp_min": lambda x: torch.clamp_min(x, 0),
        "maximum": lambda x: torch.maximum(x, torch.zeros(())),
        "at least a learned one": lambda x: torch.clamp(torch.zeros(()), min=x),
        "at most a learned one": lambda x: torch.clamp(torch.zeros(()), max=x),
    }.items(),
)
def test_gradients_at_a_limit_are_torchs(name, limited):
    """Where a parameter that begins at zero, or a score of zero, lies on the limit."""
    rates = torch.zeros(H, requires_grad=True)
    q, v = (torch.zeros(B, H, N, 8).requires_grad_() for _ in range(2))
    k, values = torch.randn(B, H, N, 8), v + torch.randn(N, 8)

    def score_mod(s, b, h, q, k):
        return limited(s) + limited(rates[h]) * (k - q)

    out = ma.attention(q, k, values, ma.score(score_mod), backend="cpu")
    far = torch.arange(N) - torch.arange(N)[:, None]
    score = limited(q @ k.mT / 8**0.5) + limited(rates)[:, None, None] * far
    want = score.softmax(-1) @ values
    slopes = [torch.autograd.grad(x.sin().sum(), [rates, q, v]) for x in (out, want)]
    for found, wanted in zip(*slopes, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_limits_of_masked_scores_keep_the_mask():
    found = ma.score(lambda s, b, h, q, k: torch.where(q >= k, s, -torch.inf).clamp(max=5))
    assert isinstance(found, ma.Score) and ma.equivalent(found.mask, ma.causal)


def test_noop_is_the_score():
    assert ma.score(lambda s, b, h, q, k: s).bias_node is nodes.SCORE
