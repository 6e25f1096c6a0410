"""Weight functions of the fused kernels in Triton's interpreter, against float64 autograd."""

import os

import pytest
import torch

from tests.cases.weights import compared, expressions, weights, worst_error

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 33


@pytest.mark.parametrize(
    "weight, expression",
    [(weight, "padding") for weight in weights()]
    + [(weight, "document") for weight in ("softmax_with_sink", "sigmoid-heads", "relu")],
)
def test_output_and_gradients(weight, expression):
    torch.manual_seed(1)
    # Two tiles of queries and three of keys, the last ones cut.
    shapes = ((2, 4, LENGTH, 16), (2, 2, LENGTH, 16), (2, 2, LENGTH, 24))
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    chosen, score = weights()[weight], expressions(length=LENGTH)[expression]
    found = compared(inputs, score, chosen, "triton")
    assert worst_error(found, compared(wide, score, chosen, "reference")) < 2e-5
