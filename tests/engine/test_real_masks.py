"""Masks that compare real numbers: one matrix, whatever computes it."""

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import maskalg as ma
from maskalg import kv_idx, q_idx, table
from maskalg.testing import assert_labels_exact
from tests.cases.real_masks import LENGTH, masks

TICKS = 1_700_000_000 + torch.arange(LENGTH)


def roots_are_rounded():
    """Whether torch's roots are, as numpy's: those of MKL are off by a bit on some machines."""
    numbers = torch.arange(LENGTH).sqrt()
    return np.array_equal(numbers.numpy(), np.sqrt(np.arange(LENGTH, dtype=np.float32)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", list(masks()))
def test_what_attention_keeps(name, backend, dtype):
    mask = masks()[name]
    q, one = torch.zeros(1, 1, LENGTH, LENGTH, dtype=dtype), torch.eye(LENGTH, dtype=dtype)
    kept = ma.attention(q, q, one[None, None], mask, backend=backend) > 0
    assert torch.equal(kept, mask.to_dense(LENGTH))


@pytest.mark.parametrize("name", list(masks()))
def test_labels_and_exports(name):
    mask = masks()[name]
    matrix = mask.to_dense(LENGTH)
    assert_labels_exact(mask, LENGTH, block=16)
    # FlexAttention says nothing of integers that real numbers exceed, and takes torch's roots.
    if "integers" not in name and (name != "roots" or roots_are_rounded()):
        assert torch.equal(create_mask(mask.to_mask_mod(), 1, 1, LENGTH, LENGTH, "cpu"), matrix)


def test_every_dtype_is_compared_in_float32():
    assert masks()["float64"].to_dense(LENGTH).all()
    half = torch.tensor([1.0, 1 / 1024], dtype=torch.float16)
    assert not (table(half)[q_idx] + table(half)[1] / 2 == 1).to_dense(1, 1).any()


@pytest.mark.parametrize("name", ["ticks", "shares of ticks"])
def test_large_integers_are_added_as_integers(name):
    """float32 does not tell numbers near 1.7e9 apart that differ by less than 128."""
    apart = 3 * (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH))
    wanted = {"ticks": apart + 0.5 < 10, "shares of ticks": apart * 0.5 < 10}[name]
    assert torch.equal(masks()[name].to_dense(LENGTH)[0, 0], wanted)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_biases_of_large_integers(backend):
    ticks = table(TICKS, "ticks")
    late = ma.bias(-0.1 * (ticks[q_idx] - ticks[kv_idx]))
    since = ma.bias(table(torch.zeros(1), "zero")[0] + (ticks[kv_idx] - 1_700_000_000))
    traced = ma.score(lambda s, b, h, q, k: s + (TICKS[k] - TICKS[q]))
    q, one = torch.zeros(1, 1, LENGTH, 8), torch.eye(LENGTH)[None, None]
    ahead = torch.arange(LENGTH) - torch.arange(LENGTH)[:, None]
    for bias, added in ((late, 0.1 * ahead), (since, 1.0 * ahead), (traced, 1.0 * ahead)):
        weights = ma.attention(q, q, one, bias, backend=backend)[0, 0]
        torch.testing.assert_close(weights, added.softmax(-1))
