"""Masks that compare real numbers: one matrix, whatever computes it."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import maskalg as ma
from maskalg import kv_idx, q_idx, sqrt, table
from maskalg.testing import assert_labels_exact

LENGTH = 64


def masks():
    seconds = table(1.7e9 + torch.arange(LENGTH, dtype=torch.float64), "seconds")
    half = table(torch.linspace(0, 1, LENGTH, dtype=torch.float16), "half")
    brain = table(torch.linspace(0, 1, LENGTH, dtype=torch.bfloat16), "brain")
    return {
        "float64": seconds[q_idx] >= seconds[kv_idx],
        "equal float64": seconds[q_idx] == seconds[kv_idx],
        "float16": half[q_idx] + half[kv_idx] * 0.3 >= half[q_idx] * half[q_idx],
        "bfloat16": brain[q_idx] + brain[kv_idx] * 0.3 >= brain[q_idx] * brain[q_idx],
        "roots": sqrt(q_idx) * sqrt(q_idx) >= kv_idx,
    }


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
