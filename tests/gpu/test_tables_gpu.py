"""Gradients of tables on a GPU, against float64 autograd through the reference."""

import pytest
import torch

import maskalg as ma
from tests.cases.tables import SOFTPLUS, cancelling, compared, scores
from tests.cases.weights import worst_error

pytestmark = pytest.mark.gpu

LENGTH = 515
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}
NAMES = [name for name in scores() if name != "queries"]


def inputs_of(dtype, length=LENGTH):
    torch.manual_seed(1)
    return [
        torch.randn(2, heads, length, 64, device="cuda", dtype=dtype, requires_grad=True)
        for heads in (4, 2, 2)
    ]


def check(name, dtype, weight):
    inputs = inputs_of(dtype)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    score, tables = scores("cuda", LENGTH)[name]
    found = compared(inputs, score, tables, "triton", weight)
    assert worst_error(found, compared(wide, score, tables, "reference", weight)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, dtype):
    check(name, dtype, ma.linear if name == "decay" else ma.softmax)


@pytest.mark.parametrize("name", ["queries", "distances", "kinds", "keys"])
def test_gradients_of_other_weights(name):
    check(name, torch.float32, ma.sigmoid(-2.0))


@pytest.mark.parametrize("name", NAMES)
def test_repeats_bitwise(name):
    def once():
        score, tables = scores("cuda", 700)[name]
        return compared(inputs_of(torch.bfloat16, 700), score, tables, "triton")

    assert all(torch.equal(a, b) for a, b in zip(once(), once(), strict=True))


def test_gradients_that_are_not_finite_stay_so():
    score, (table,) = scores("cuda", LENGTH)["distances"]
    inputs = inputs_of(torch.float32)
    out = ma.attention(*inputs, score)
    out.backward(torch.full_like(out, float("inf")))
    assert not table.grad.isfinite().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_gradients_in_16_bits_are_those_of_the_inputs(dtype, mean):
    """What rounding took from the output must not stay."""
    for weight in (ma.softmax, SOFTPLUS):
        assert max(cancelling("triton", dtype, mean, 4000, "cuda", weight=weight)) <= 1e-4
