"""Gradients of tables from the fused kernels in Triton's interpreter, against float64 autograd."""

import os

import pytest
import torch

import maskalg as ma
from tests.cases.tables import SOFTPLUS, cancelling, compared, scores
from tests.cases.weights import worst_error

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 40


def both(name, weight):
    torch.manual_seed(1)
    inputs = [torch.randn(2, heads, LENGTH, 16, requires_grad=True) for heads in (4, 2, 2)]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    score, tables = scores(length=LENGTH)[name]
    found = compared(inputs, score, tables, "triton", weight)
    return found, compared(wide, score, tables, "reference", weight)


# A bias of a query alone changes no softmax.
@pytest.mark.parametrize("name", [name for name in scores() if name != "queries"])
def test_gradients(name):
    assert worst_error(*both(name, ma.softmax)) < 3e-5


@pytest.mark.parametrize("name", ["queries", "distances", "kinds"])
def test_gradients_of_other_weights(name):
    assert worst_error(*both(name, ma.sigmoid(-1.0))) < 3e-5
    assert worst_error(*both(name, ma.softmax_plus_one)) < 3e-5


def test_steep_biases_of_dropped_pairs():
    """log 0 and 1 / 0 are the slopes where the mask drops the pair."""

    def gradient(backend, dtype, of_distance):
        torch.manual_seed(1)
        learned = torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)
        inputs = [torch.randn(1, 2, 20, 16).to(dtype) for _ in range(3)]
        steepness, distance = ma.table(learned)[ma.head], abs(ma.q_idx - ma.kv_idx)
        score = (ma.q_idx > ma.kv_idx) + ma.bias(of_distance(steepness, distance))
        out = ma.attention(*inputs, score, backend=backend)
        return torch.autograd.grad((out * torch.linspace(-1, 1, 16)).sum(), learned)[0]

    for of_distance in (lambda p, d: -p * ma.log(d), lambda p, d: p / d):
        want = gradient("reference", torch.float64, of_distance)
        found = gradient("triton", torch.float32, of_distance)
        torch.testing.assert_close(found.double(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounded", [ma.maximum, ma.minimum])
def test_gradients_where_two_arguments_are_equal(bounded):
    """Each has half of them, as in torch."""
    found = []
    for backend in ("triton", "cpu", "reference"):
        torch.manual_seed(1)
        limit = torch.tensor([9.0], requires_grad=True)
        inputs = [torch.randn(1, 1, 20, 16) for _ in range(3)]
        bias = ma.bias(bounded(ma.table(limit)[0], ma.q_idx + 0.0) * ma.kv_idx / 10)
        out = ma.attention(*inputs, ma.causal + bias, backend=backend)
        found.append(torch.autograd.grad((out * torch.linspace(-1, 1, 16)).sum(), limit)[0])
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-4, atol=1e-6)


def test_gradients_of_one_table_beside_another_at_its_kink():
    """The slope of a root at 0 is infinite, and concerns the table below the root alone."""
    found = []
    for backend in ("triton", "reference"):
        torch.manual_seed(1)
        learned, root = torch.rand(20, requires_grad=True), torch.tensor([0.0, 1.0] * 10)
        inputs = [torch.randn(1, 1, 20, 16) for _ in range(3)]
        below = ma.maximum(ma.table(root.requires_grad_(), "root")[ma.q_idx], 0.0)
        bias = ma.bias(ma.table(learned, "t")[ma.kv_idx] + ma.sqrt(below) * ma.kv_idx / 9)
        out = ma.attention(*inputs, ma.causal + bias, backend=backend)
        found.append(torch.autograd.grad((out * torch.linspace(-1, 1, 16)).sum(), learned)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_gradients_in_16_bits_are_those_of_the_inputs(mean):
    """What rounding took from the output must not stay."""
    for weight in (ma.softmax, SOFTPLUS):
        assert max(cancelling("triton", torch.float16, mean, 200, weight=weight)) <= 1e-4


@pytest.mark.parametrize("heads", [1, 3])
def test_tables_that_are_negated_views(heads):
    """Their memory holds the opposite of their entries; a table of one entry is contiguous."""
    slopes = torch.complex(torch.zeros(heads), -torch.rand(heads)).conj().imag
    assert slopes.is_neg()
    inputs = [torch.randn(1, heads, LENGTH, 16) for _ in range(3)]
    score = ma.causal + ma.alibi(slopes)
    wanted = ma.attention(*inputs, score, backend="reference")
    for _ in range(3):
        torch.testing.assert_close(ma.attention(*inputs, score, backend="triton"), wanted)
