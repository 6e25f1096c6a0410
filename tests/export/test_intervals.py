"""`to_mask_mod(form="intervals")`: the same mask, or a refusal."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskalg as ma
from maskalg import MaskValueError, causal, document, prefix, sliding
from maskalg.questions import rows
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.strategies import masks

LENGTH = 37
IDS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 2]).repeat_interleave(4)
GIVEN = {
    "everything": ma.everything,
    "nothing": ma.nothing,
    "causal": causal,
    "sinks and window": causal & (sliding(5) | prefix(2)),
    "documents": causal & document(IDS),
    "documents of a batch": document(torch.stack([IDS, IDS.flip(0)])) & sliding(9),
    "windows by head": causal & sliding(torch.tensor([3, 11, 5])),
    "documents in turns": document(torch.arange(40) % 3),
    "neighborhood": ma.neighborhood((6, 6), 3),
}


def matrix(mask: ma.Mask, q_len: int, kv_len: int, most: int = 64) -> torch.Tensor:
    mask_mod = mask.to_mask_mod(
        q_len, kv_len, form="intervals", most=most, batch=BATCH, heads=HEADS
    )
    at = [torch.arange(n) for n in (BATCH, HEADS, q_len, kv_len)]
    b, h, q, k = (
        x.view([-1 if axis == number else 1 for axis in range(4)]) for number, x in enumerate(at)
    )
    return mask_mod(b, h, q, k).expand(BATCH, HEADS, q_len, kv_len)


@pytest.mark.parametrize("name", GIVEN)
def test_intervals_are_the_mask(name: str) -> None:
    mask = GIVEN[name]
    for lengths in ((36, 36), (1, 36), (17, 5)):
        dense = mask.to_dense(*lengths, batch=BATCH, heads=HEADS)
        assert torch.equal(matrix(mask, *lengths), dense.expand(BATCH, HEADS, *lengths)), lengths


@given(masks(depth=2), st.sampled_from([8, 128]))
def test_random_compositions_are_the_same(case: Case, side: int) -> None:
    """In one tile, and in several: full ones, partial ones and such as the lengths cut."""
    dense = case.mask.to_dense(LENGTH, batch=BATCH, heads=HEADS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_SIDE", side)
        found = matrix(case.mask, LENGTH, LENGTH)
    assert torch.equal(found, dense.expand(BATCH, HEADS, LENGTH, LENGTH))


def test_a_million_tokens_whose_proof_gives_no_intervals() -> None:
    """Images of 256 tokens: elements are looked at where a tile is neither full nor empty."""
    tokens = 1 << 20
    ids = torch.arange(tokens, dtype=torch.int32) // 256
    images = torch.where(ids % 3 == 1, ids, -1)
    found = (causal | ma.spans(images)).to_cudnn(tokens).mask_func
    place = torch.arange(tokens)
    last = torch.where(images >= 0, (place // 256 + 1) * 256, place + 1)
    assert torch.equal(found[0], last[None].int())


def test_what_is_refused() -> None:
    for mistake, text in (
        (lambda: causal.to_mask_mod(form="intervals"), "intervals of keys depend on the lengths"),
        (lambda: causal.to_mask_mod(8, form="text"), 'must be "formula" or "intervals"'),
        (
            lambda: (causal & (sliding(2) | prefix(2))).to_mask_mod(9, form="intervals", most=1),
            "keeps 2 intervals of keys, and 1 are the most",
        ),
        (
            lambda: document(torch.arange(1 << 18) % 9).to_mask_mod(1 << 18, form="intervals"),
            "gives no exact intervals of keys",
        ),
    ):
        with pytest.raises(MaskValueError) as found:
            mistake()
        assert text in str(found.value)


def test_flex_attention_takes_them() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 40, 8)
    mask = causal & document(IDS)
    blocks = create_block_mask(
        mask.to_mask_mod(40, form="intervals"), None, None, 40, 40, device="cpu", BLOCK_SIZE=8
    )
    out = flex_attention(q, k, v, block_mask=blocks)
    torch.testing.assert_close(out, ma.attention(q, k, v, mask), atol=1e-5, rtol=1e-4)
