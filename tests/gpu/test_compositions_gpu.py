"""Random compositions on a GPU: attention and gradients against float64, labels against brute
force, whatever kernel and schedule serves them."""

import random

import pytest
import torch

import maskalg as ma
from maskalg.testing import assert_labels_exact
from tests.cases.compositions import BATCH, HEADS, composition, lengths
from tests.cases.gradients import check_gradients

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

MOST = {torch.float16: 6e-3, torch.bfloat16: 3e-2, torch.float32: 1e-4}


def weight(draw):
    sinks = torch.linspace(-1, 1, HEADS, device="cuda").requires_grad_()
    others = [ma.softmax_with_sink(sinks), ma.sigmoid(-2.0)]
    return draw.choice([ma.softmax] * 4 + others)


@pytest.mark.parametrize("seed", range(120))
def test_gradients(seed):
    draw = random.Random(seed)
    q_len, kv_len = (2 * n if draw.random() < 0.5 else n for n in lengths(seed))
    dim = draw.choice([40, 64, 64, 64, 96, 128, 128, 128, 256])
    dtype = draw.choice([torch.bfloat16, torch.float16, torch.float16, torch.float32])
    kv_heads = draw.choice([1, 2, HEADS])
    expression = composition(seed, q_len, kv_len, "cuda")
    torch.manual_seed(seed)
    sizes = ((HEADS, q_len), (kv_heads, kv_len), (kv_heads, kv_len))
    tensors = [torch.randn(BATCH, h, n, dim, device="cuda", dtype=dtype) for h, n in sizes]
    # Queries that keep one key have no gradient but what rounding of 256 products leaves.
    least = 1.0 if dtype == torch.float32 else 0.1
    check_gradients(tensors, expression, most=MOST[dtype], least=least, weight=weight(draw))


@pytest.mark.parametrize("seed", range(120))
def test_labels(seed):
    q_len, kv_len = lengths(seed)
    mask = composition(3 * seed, q_len, kv_len, "cuda")
    assert isinstance(mask, ma.Mask)
    for block in (64, (128, 32)):
        assert_labels_exact(mask, q_len, kv_len, block, batch=BATCH, heads=HEADS)
