"""Inputs on a GPU that is not the current one."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_second_device(dtype):
    """Called often enough to be remembered, beside like calls on the first device."""
    torch.manual_seed(0)
    made = [torch.randn(1, 2, 300, 64) for _ in range(3)]
    found = {}
    expression = causal & sliding(100)
    for device in ("cuda:0", "cuda:1") * 3:
        leaves = [t.to(device, dtype).requires_grad_() for t in made]
        out = ma.attention(*leaves, expression)
        grads = torch.autograd.grad(out.float().square().sum(), leaves)
        with torch.no_grad():
            assert torch.equal(ma.attention(*leaves, expression), out)
        assert torch.cuda.current_device() == 0
        results = [t.cpu() for t in (out, *grads)]
        for one, other in zip(results, found.setdefault("first", results), strict=True):
            assert torch.equal(one, other)
