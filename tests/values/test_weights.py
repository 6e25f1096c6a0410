"""Weight functions on the CPU, against formulas written out and against the reference."""

import math

import pytest
import torch

import maskalg as ma
from maskalg import causal
from tests.cases.weights import compared, expressions, weights, worst_error

LENGTH = 150


def inputs_of(*shapes, dtype=torch.float32):
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


FORMULAS = {
    "softmax_plus_one": lambda s: s.exp() / (1 + s.exp().sum(-1, keepdim=True)),
    "sink-number": lambda s: s.exp() / (torch.tensor(1.5).exp() + s.exp().sum(-1, keepdim=True)),
    "sigmoid": lambda s: torch.sigmoid(s - 1),
    "relu": lambda s: s.nan_to_num(neginf=0).relu(),
    "relu_squared": lambda s: s.relu() ** 2,
    "linear": lambda s: s.nan_to_num(neginf=0),
    "sigmoids, normalised": lambda s: s.sigmoid() / s.sigmoid().sum(-1, keepdim=True),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", list(FORMULAS))
def test_formula(name, backend):
    q, k, v = (t.detach() for t in inputs_of(*((2, 4, 33, 8),) * 3))
    out = ma.attention(q, k, v, causal, weight=weights()[name], backend=backend)
    score = (q @ k.transpose(-1, -2)) / 8**0.5
    score = score.masked_fill(~causal.to_dense(33), float("-inf"))
    want = FORMULAS[name](score).nan_to_num() @ v
    torch.testing.assert_close(out, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("expression", list(expressions()))
@pytest.mark.parametrize("weight", list(weights()))
def test_output_and_gradients(weight, expression):
    inputs = inputs_of((2, 4, LENGTH, 16), (2, 2, LENGTH, 16), (2, 2, LENGTH, 24))
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    chosen, score = weights()[weight], expressions(length=LENGTH)[expression]
    found = compared(inputs, score, chosen, "cpu")
    assert worst_error(found, compared(wide, score, chosen, "reference")) < 2e-5


def test_a_learned_bias_of_a_sigmoid():
    bias = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    inputs = inputs_of(*((1, 2, 9, 4),) * 3, dtype=torch.float64)

    def attend(q, k, v, b):
        return ma.attention(q, k, v, causal, weight=ma.sigmoid(b), backend="cpu")

    assert torch.autograd.gradcheck(attend, (*inputs, bias))


def test_a_learned_sink_and_the_lse():
    sink = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    inputs = inputs_of(*((1, 2, 9, 4),) * 3, dtype=torch.float64)

    def attend(q, k, v, b):
        weight = ma.softmax_with_sink(b)
        return ma.attention(q, k, v, causal, weight=weight, return_lse=True, backend="cpu")

    assert torch.autograd.gradcheck(attend, (*inputs, sink))


def test_a_query_that_keeps_nothing():
    for weight in weights().values():
        inputs = inputs_of(*((1, 4, 40, 8),) * 3)
        out, *gradients = compared(inputs, ma.nothing, weight, "cpu")
        assert not out.any() and not any(g.any() for g in gradients[:3])


def test_what_explain_takes():
    q = torch.zeros(1, 4, 8, 4)
    found = ma.explain(q, q, q, causal, scale=0.5, weight=ma.sigmoid(torch.zeros(4)))
    assert found.backend == "cpu"
    for wrong in ({"scale": math.nan}, {"weight": ma.softmax_with_sink(torch.zeros(3))}):
        with pytest.raises(ma.MaskValueError):
            ma.explain(q, q, q, causal, **wrong)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda q: ma.attention(q, q, q, weight="softmax"), TypeError, "such as ma.softmax"),
        (
            lambda q: ma.attention(q, q, q, weight=ma.relu, return_lse=True),
            ValueError,
            "weight=relu has no logarithm",
        ),
        (
            lambda q: ma.attention(q, q, q, weight=ma.softmax_with_sink(torch.zeros(3))),
            ValueError,
            r"sink must have shape \[4\], got \[3\]",
        ),
        (lambda q: ma.softmax_with_sink(torch.zeros(3, dtype=torch.int)), TypeError, "floating"),
        (lambda q: ma.sigmoid(None), TypeError, "sigmoid: bias must be a number, or"),
        (lambda q: ma.softmax_with_sink(None), TypeError, "logits must be a number, or"),
        (lambda q: ma.sigmoid(math.nan), ValueError, "sigmoid: bias must be a number, got nan"),
        (lambda q: ma.softmax_with_sink(math.nan), ValueError, "logits must be a number, got nan"),
        (lambda q: ma.sigmoid(torch.zeros(3, 2)), ValueError, r"\[heads\], got \[3, 2\]"),
        (lambda q: ma.Weight("w", lambda s: s), TypeError, "formula is a bias"),
        (lambda q: ma.Weight("w", normalised=False), ValueError, "overflows"),
        (lambda q: ma.Weight("w", ma.softcap(1), sink=0.0), ValueError, "a sink is a logit"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(torch.zeros(1, 4, 8, 4))
