"""Tensors without dimensions, and biases that are one number."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, kv_idx, q_idx, table

LENGTH = 9


def scores(t):
    """Name: an expression and a weight function that read the number `t`."""
    return {
        "factor": (causal + ma.score(lambda s, b, h, q, k: s * t), ma.softmax),
        "slope": (causal + ma.bias(table(t, "t")[()] * abs(q_idx - kv_idx)), ma.softmax),
        "weight": (
            causal,
            ma.Weight("scaled", ma.score(lambda s, b, h, q, k: torch.sigmoid(s * t)), False),
        ),
    }


@pytest.mark.parametrize("name", list(scores(torch.tensor(1.0))))
def test_their_gradients(name):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, LENGTH, 8) for _ in range(3))
    found = []
    for backend in ("cpu", "reference"):
        t = torch.tensor(1.3, requires_grad=True)
        score, weight = scores(t)[name]
        out = ma.attention(q, k, v, score, weight=weight, backend=backend)
        found += torch.autograd.grad(out.square().sum(), t)
    assert found[1].abs() > 0.1
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("mask", [causal, ma.everything])
def test_a_bias_of_one_number(mask, lse):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, LENGTH, 8) for _ in range(3))
    for added in (ma.bias(0.05 * ma.scalar(5)), ma.bias(table(torch.tensor(0.25), "t")[()])):
        out = ma.attention(q, k, v, mask + added, return_lse=lse, backend="cpu")
        wanted = ma.attention(q, k, v, mask + added, return_lse=lse, backend="reference")
        torch.testing.assert_close(out, wanted)
