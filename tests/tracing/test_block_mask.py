"""A `BlockMask` of FlexAttention as a mask: its own matrix."""

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

import maskalg as ma
from maskalg import causal

LENGTH, BLOCK = 256, 32


def chosen(full=False):
    """Blocks that a model chose, in any order, with numbers that do not count behind them."""
    torch.manual_seed(0)
    columns = LENGTH // BLOCK
    order = torch.rand(2, 3, columns, columns).argsort(-1).int()
    counts = torch.randint(0, 4, (2, 3, columns)).int()
    others = torch.randint(0, 4, (2, 3, columns)).int()
    whole = (others, order.roll(-4, -1).contiguous()) if full else (None, None)
    return counts, order, *whole


def by_lists(counts, order):
    counted = torch.arange(order.shape[-1]) < counts[..., None]
    listed = torch.zeros(order.shape, dtype=torch.bool).scatter(-1, order.long(), counted)
    return listed.repeat_interleave(BLOCK, 2).repeat_interleave(BLOCK, 3)


@pytest.mark.parametrize("mod", [None, lambda b, h, q, k: q >= k])
@pytest.mark.parametrize("full", [False, True])
def test_blocks_that_were_chosen(full, mod):
    counts, order, others, whole = chosen(full)
    found = BlockMask.from_kv_blocks(counts, order, others, whole, BLOCK_SIZE=BLOCK, mask_mod=mod)
    wanted = by_lists(counts, order)
    if mod is not None:
        wanted = wanted & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    if full:
        wanted = wanted | by_lists(others, whole)
    mask = ma.mask(found)
    assert torch.equal(mask.to_dense(LENGTH, batch=2, heads=3), wanted)
    q = torch.randn(2, 3, LENGTH, 16)
    torch.testing.assert_close(
        ma.attention(q, q, q, mask), ma.attention(q, q, q, ma.dense(wanted)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (100, 230)])
def test_blocks_that_follow_from_a_function(lengths):
    made = create_block_mask(
        lambda b, h, q, k: (q >= k) & (q - k < 70), None, None, *lengths, device="cpu",
        BLOCK_SIZE=BLOCK,
    )  # fmt: skip
    mask = causal & ma.sliding(70)
    assert torch.equal(ma.mask(made).to_dense(*lengths), mask.to_dense(*lengths))


def test_a_call_as_flex_attention_takes_it():
    q, block_mask = (
        torch.randn(1, 1, 64, 16),
        create_block_mask(lambda b, h, q, k: q >= k, None, None, 64, 64, device="cpu"),
    )
    with pytest.raises(TypeError, match=r"one argument for FlexAttention's score_mod and block_m"):
        ma.attention(q, q, q, None, block_mask)
    with pytest.raises(TypeError, match=r"block_mask: the mask is the fourth argument, ma\.mask\("):
        ma.attention(q, q, q, block_mask=block_mask)
