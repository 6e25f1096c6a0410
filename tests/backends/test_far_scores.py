"""Biases as large as numbers are: the masks of libraries hold the lowest number, or -1e9."""

import pytest
import torch

import maskalg as ma
from maskalg import causal

LENGTH = 9
LIMITS = torch.finfo(torch.float32)


def biases():
    some = torch.zeros(LENGTH)
    some[:4] = LIMITS.min
    either = torch.full((LENGTH,), LIMITS.min)
    either[3] = torch.finfo(torch.bfloat16).min
    return {
        "lowest": ma.key_bias(torch.full((LENGTH,), LIMITS.min)),
        "billion": ma.key_bias(torch.full((LENGTH,), -1e9)),
        "highest": ma.key_bias(torch.full((LENGTH,), 3e38)),
        "some": causal + ma.key_bias(some),
        "two kinds": ma.key_bias(either),
        "not added": ma.score(lambda s, b, h, q, k: s * 2 + torch.where(k > q, LIMITS.min, 0.0)),
        "beside rows of nothing": (ma.q_idx > 3) & causal + ma.key_bias(some),
    }


@pytest.mark.parametrize("name", list(biases()))
def test_one_result_with_and_without_gradients(name):
    torch.manual_seed(0)
    tensors = [torch.randn(1, 2, LENGTH, 8, requires_grad=True) for _ in range(3)]
    change, found = torch.randn(1, 2, LENGTH, 8), []
    for backend in ("cpu", "reference"):
        with torch.no_grad():
            plain = ma.attention(*tensors, biases()[name], backend=backend)
        out, lse = ma.attention(*tensors, biases()[name], return_lse=True, backend=backend)
        found.append([plain, out, lse, *torch.autograd.grad((out * change).sum(), tensors)])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)
