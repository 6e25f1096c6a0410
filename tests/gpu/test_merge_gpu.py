"""Parts of keys joined by one kernel, against the operations of torch on the CPU."""

import pytest
import torch

import maskalg as ma
from tests.cases.parts import LAYOUTS, parts

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number, shape, tokens_first", [*LAYOUTS, (2, (3, 5, 2000, 96), True)])
def test_parts(number, shape, tokens_first, dtype):
    outs, lses = parts(number, shape, dtype, tokens_first=tokens_first)
    wanted, of_wanted = ma.merge(outs, lses)
    found, lse = ma.merge([x.cuda() for x in outs], [x.cuda() for x in lses])
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(found.cpu(), wanted, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.cpu(), of_wanted, atol=1e-5, rtol=1e-6)


def test_gradients_are_those_of_torch():
    outs, lses = parts(3, (1, 2, 30, 16), torch.float32)
    gradients = []
    for device in ("cpu", "cuda"):
        leaves = [x.detach().to(device).requires_grad_() for x in (*outs, *lses)]
        out, lse = ma.merge(leaves[:3], leaves[3:])
        total = out.square().sum() + torch.where(lse == float("-inf"), 0.0, lse).sum()
        gradients.append([g.cpu() for g in torch.autograd.grad(total, leaves)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
