"""What a document gives does not depend on what it is packed with: the same bits on a CPU."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import causal, document, sliding
from maskalg.backends.cpu.native.compile import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

LENGTHS = st.lists(st.integers(1, 150), min_size=1, max_size=6)
BOUNDED = {
    "causal": lambda packed: causal & packed,
    "document": lambda packed: packed,
    "window": lambda packed: sliding(40) & packed,
    "alibi": lambda packed: causal & packed + ma.alibi(torch.tensor([0.5, 0.1])),
    "softcap": lambda packed: causal & packed + ma.softcap(20.0),
}


def attend(name, lengths, tensors, change):
    leaves = [x.detach().requires_grad_() for x in tensors]
    score = BOUNDED[name](document.from_lengths(lengths))
    out, lse = ma.attention(*leaves, score, return_lse=True)
    return out, lse, *torch.autograd.grad(out, leaves, change)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(BOUNDED))
@settings(max_examples=12)
@given(lengths=LENGTHS, data=st.data())
def test_a_document_gives_the_same_bits_alone_and_packed(name, dtype, lengths, data) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    *tensors, change = (
        torch.randn(1, heads, sum(lengths), 24, generator=generator).to(dtype)
        for heads in (2, 1, 1, 2)
    )
    packed = attend(name, lengths, tensors, change)
    ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    order = data.draw(st.permutations(range(len(lengths))))
    places = torch.cat([torch.arange(ends[d], ends[d + 1]) for d in order])
    others = [lengths[d] for d in order]
    moved = attend(name, others, [x[:, :, places] for x in tensors], change[:, :, places])
    for found, other in zip(packed, moved, strict=True):
        assert torch.equal(found[:, :, places], other)
    for begin, end in pairwise(ends):
        *own, of_out = (x[:, :, begin:end] for x in (*tensors, change))
        alone = attend(name, [end - begin], own, of_out)
        for found, other in zip(packed, alone, strict=True):
            assert torch.equal(found[:, :, begin:end], other)
