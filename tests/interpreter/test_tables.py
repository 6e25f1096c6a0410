"""Gradients of tables from the fused kernels in Triton's interpreter, against float64 autograd."""

import os

import pytest
import torch

import maskalg as ma
from tests.table_cases import compared, scores
from tests.weight_cases import worst_error

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
