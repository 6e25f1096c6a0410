"""Weight functions on a GPU, against float64 autograd through the reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from tests.cases.weights import compared, expressions, weights, worst_error

pytestmark = pytest.mark.gpu

LENGTH = 515
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 2.5e-2}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("expression", list(expressions()))
@pytest.mark.parametrize("weight", list(weights()))
def test_output_and_gradients(weight, expression, dtype):
    torch.manual_seed(1)
    inputs = [
        torch.randn(2, heads, LENGTH, 64, device="cuda", dtype=dtype, requires_grad=True)
        for heads in (4, 2, 2)
    ]
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    chosen, score = weights("cuda")[weight], expressions("cuda", LENGTH)[expression]
    found = compared(inputs, score, chosen, "triton")
    assert worst_error(found, compared(wide, score, chosen, "reference")) < TOLERANCE[dtype]


def test_a_sink_beside_the_lse():
    torch.manual_seed(1)
    inputs = [torch.randn(2, 4, 300, 64, device="cuda", requires_grad=True) for _ in range(3)]
    sink = torch.randn(4, device="cuda", requires_grad=True)
    results = []
    for tensors, logits, backend in (
        (inputs, sink, "triton"),
        ([t.detach().double().requires_grad_() for t in inputs], sink.double(), "reference"),
    ):
        weight = ma.softmax_with_sink(logits)
        out, lse = ma.attention(*tensors, causal, weight=weight, return_lse=True, backend=backend)
        loss = out.sin().sum() + lse.cos().sum()
        results.append([out, lse, *torch.autograd.grad(loss, [*tensors, sink])])
    assert worst_error(*results) < 2e-5
