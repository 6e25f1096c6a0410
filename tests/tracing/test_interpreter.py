"""Traced functions in the fused kernel, in Triton's interpreter."""

import os

import pytest
import torch
from flex_masks import masks
from flex_scores import B, H, scores
from flex_scores import N as LENGTH

import maskalg as ma

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

SCORES = ("paths", "buckets", "functions", "rounded", "activations", "no-score", "power", "gelu")
MASKS = ("neighborhood-morton", "divisions", "chosen-tiles", "before", "functions", "documents")


def check(expression, length):
    inputs = [torch.randn(B, H, length, 16) for _ in range(3)]
    got, want = (
        ma.attention(*inputs, expression, backend=name) for name in ("triton", "reference")
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    check(ma.causal + ma.score(scores()[name]), LENGTH)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    case = masks()[name]
    function = case[0] if isinstance(case, tuple) else case
    check(ma.mask(function), case[1] if isinstance(case, tuple) else 40)
