"""Masks and score terms of the catalogue in Triton's interpreter, against the float64 reference."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import BIASES, CATALOGUE, LENGTH

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


def check(expression, q_len, kv_len):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(BATCH, HEADS, length, 16, generator=generator)
        for length in (q_len, kv_len, kv_len)
    )
    out, lse = ma.attention(query, key, value, expression, return_lse=True, backend="triton")
    wide = (query.double(), key.double(), value.double())
    want, want_lse = ma.attention(*wide, expression, return_lse=True, backend="reference")
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), want_lse.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CATALOGUE)
def test_masks(name):
    check(CATALOGUE[name].mask, 37, 40)


@pytest.mark.parametrize("name", BIASES)
def test_score_terms(name):
    case = BIASES[name]
    bias = case.build(*[table.detach().float() for table in case.tensors()])
    check(ma.causal + bias, LENGTH, LENGTH)


@pytest.mark.parametrize("name", BIASES)
def test_gradients(name):
    """Of queries, keys, values and tables, against float64 autograd."""

    def gradients(backend, dtype):
        generator = torch.Generator().manual_seed(1)
        inputs = [
            torch.randn(BATCH, HEADS, LENGTH, 16, generator=generator).to(dtype).requires_grad_()
            for _ in range(3)
        ]
        tables = [t.detach().to(dtype).requires_grad_() for t in BIASES[name].tensors()]
        score = ma.causal + BIASES[name].build(*tables)
        out = ma.attention(*inputs, score, backend=backend)
        weights = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
        return torch.autograd.grad((out * weights).sum(), [*inputs, *tables])

    wanted = gradients("reference", torch.float64)
    largest = max(part.abs().max().item() for part in wanted)
    for found, want in zip(gradients("triton", torch.float32), wanted, strict=True):
        torch.testing.assert_close(found.double(), want, rtol=1e-5, atol=1e-6 * largest)


def test_canvases():
    """Their runs are looked up, of tiles of queries and, for the gradients of keys, of keys."""

    def computed(backend, dtype):
        generator = torch.Generator().manual_seed(1)
        inputs = [
            torch.randn(1, 1, 9 * 13, 16, generator=generator).to(dtype).requires_grad_()
            for _ in range(3)
        ]
        out = ma.attention(*inputs, ma.neighborhood((9, 13), 5), backend=backend)
        weights = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
        return [out, *torch.autograd.grad((out * weights).sum(), inputs)]

    pairs = zip(
        computed("triton", torch.float32), computed("reference", torch.float64), strict=True
    )
    for found, wanted in pairs:
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
