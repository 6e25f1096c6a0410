"""The operators around the fused kernels, in Triton's interpreter."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


def attend(q, k, v, slopes, ids, window):
    score = causal & sliding(window) & document(ids) + alibi(slopes)
    return ma.attention(q, k, v, score, return_lse=True, backend="triton")


def arguments(length, window):
    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, length, 16, requires_grad=True) for heads in (4, 2, 2)]
    return [*tensors, torch.rand(4, requires_grad=True)], (torch.arange(length) // 11, window)


def with_gradients(function, tensors, rest):
    out, lse = function(*tensors, *rest)
    loss = out.sin().sum() + lse.cos().sum()
    return [out, lse, *torch.autograd.grad(loss, tensors)]


def test_compiled():
    torch._dynamo.reset()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for length, window in ((40, 9), (53, 20)):
        tensors, rest = arguments(length, window)
        found = with_gradients(compiled, tensors, rest)
        for got, want in zip(found, with_gradients(attend, tensors, rest), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()


def test_vmap_and_grad():
    tensors, rest = arguments(40, 9)

    def loss(q, k, v):
        out, lse = attend(q[None], k[None], v[None], slopes, *rest)
        return out.sin().sum() + lse.cos().sum()

    *plain, slopes = [tensor.detach() for tensor in tensors]
    found = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*plain)
    for got, want in zip(found, with_gradients(attend, tensors, rest)[2:5], strict=True):
        torch.testing.assert_close(got, want)
