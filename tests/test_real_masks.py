"""Masks that compare real numbers: one matrix, whatever computes it."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import maskalg as ma
from maskalg import q_idx, table
from maskalg.testing import assert_labels_exact
from tests.real_mask_cases import LENGTH, masks


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
    assert torch.equal(create_mask(mask.to_mask_mod(), 1, 1, LENGTH, LENGTH, "cpu"), matrix)


def test_every_dtype_is_compared_in_float32():
    assert masks()["float64"].to_dense(LENGTH).all()
    half = torch.tensor([1.0, 1 / 1024], dtype=torch.float16)
    assert not (table(half)[q_idx] + table(half)[1] / 2 == 1).to_dense(1, 1).any()
