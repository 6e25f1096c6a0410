"""Masks and score terms of the catalogue in Triton's interpreter, against the float64 reference."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue_biases import BIASES, LENGTH
from maskalg.testing.catalogue_tokens import TOKENS

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


@pytest.mark.parametrize("name", TOKENS)
def test_masks(name):
    check(TOKENS[name].mask, 37, 40)


@pytest.mark.parametrize("name", BIASES)
def test_score_terms(name):
    case = BIASES[name]
    bias = case.build(*[table.detach().float() for table in case.tensors()])
    check(ma.causal + bias, LENGTH, LENGTH)
