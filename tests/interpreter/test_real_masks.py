"""Kernels round real numbers as masks do: one matrix, whatever computes it."""

import os

import pytest
import torch

import maskalg as ma
from tests.cases.real_masks import LENGTH, masks

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


def kept_by_kernel(mask):
    q, one = torch.zeros(1, 1, LENGTH, LENGTH), torch.eye(LENGTH)[None, None]
    return ma.attention(q, q, one, mask, backend="triton") > 0


@pytest.mark.parametrize("name", list(masks()))
def test_what_kernels_keep(name):
    mask = masks()[name]
    assert torch.equal(kept_by_kernel(mask), mask.to_dense(LENGTH))


@pytest.mark.parametrize("name", list(masks()))
def test_gradients_of_keys_see_the_same_mask(name):
    """The loop over queries holds what the loop over keys computes, and the contrary."""
    mask = masks()[name]
    q = torch.zeros(1, 1, LENGTH, LENGTH)
    value = torch.randn(1, 1, LENGTH, LENGTH, requires_grad=True)
    grads = []
    for backend in ("triton", "cpu"):
        out = ma.attention(q, q, value, mask, backend=backend)
        grads += torch.autograd.grad(out.sum(), value)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_biases_of_times(dtype):
    """Entries past 2**30 are not cut where they become real numbers."""
    times = ma.table((1_700_000_000 - 3 * torch.arange(LENGTH)).to(dtype))
    even = ma.where(ma.kv_idx % 2 == 0, 1, 0)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, LENGTH, 16) for _ in range(3))
    for amount in (times[ma.q_idx] + ma.kv_idx, ma.kv_idx - times[ma.q_idx]):
        score = ma.causal + ma.bias(1e-9 * even * amount)
        found, wanted = (ma.attention(q, k, v, score, backend=b) for b in ("triton", "reference"))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
