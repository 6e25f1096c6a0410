"""Weight functions on the CPU, against formulas written out and against the reference."""

import math

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.testing import oracle
from maskalg.testing.case import HEADS
from maskalg.testing.catalogue import WEIGHTS
from tests.cases.weights import compared, expressions, weights, worst_error

LENGTH = 150


def inputs_of(*shapes, dtype=torch.float32):
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def check(weight, factors, backend):
    """Attention with a weight function is the product with what the oracle makes of the scores."""
    q, k, v = (torch.randn(2, HEADS, 33, 8, dtype=torch.float64) for _ in range(3))
    out = ma.attention(q, k, v, causal, weight=weight, backend=backend)
    scores = (q @ k.mT / 8**0.5).masked_fill(~causal.to_dense(33), -math.inf)
    np.testing.assert_allclose(out, factors(scores.numpy()) @ v.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_is_the_oracle(name, backend):
    case = WEIGHTS[name]
    weight = case.build(*map(torch.from_numpy, case.tables))
    check(weight, lambda s: case.weights(s, *case.tables), backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_formula_that_is_normalised(backend):
    def factors(s):
        return oracle.sigmoid(s) / oracle.sigmoid(s).sum(-1, keepdims=True)

    check(weights()["sigmoids, normalised"], factors, backend)


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
