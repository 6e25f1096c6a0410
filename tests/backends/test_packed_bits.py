"""What a document gives does not depend on what it is packed with: the same bits on a CPU."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import causal, document, sliding
from maskalg.backends.cpu.native.compile import compiler
from tests.cases.aligned import check_moved, inputs

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

LENGTHS = st.lists(st.integers(1, 150), min_size=1, max_size=6)
BOUNDED = {
    "causal": lambda packed: causal & packed,
    "document": lambda packed: packed,
    "window": lambda packed: sliding(40) & packed,
    "alibi": lambda packed: causal & packed + ma.alibi(torch.tensor([0.5, 0.1])),
    "softcap": lambda packed: causal & packed + ma.softcap(20.0),
}


def attend(name, lengths, tensors, change, backend="aligned"):
    leaves = [x.detach().requires_grad_() for x in tensors]
    score = BOUNDED[name](document.from_lengths(lengths))
    out, lse = ma.attention(*leaves, score, return_lse=True, backend=backend)
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
    for found, default in zip(packed, attend(name, lengths, tensors, change, None), strict=True):
        assert torch.equal(found, default)
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


@pytest.mark.parametrize("name", ["document", "causal", "alibi", "softcap"])
@pytest.mark.parametrize("others", [[1], [18, 0, 5], [100]])
def test_other_places_beside_poison_and_in_a_batch(name, others) -> None:
    check_moved(name, [7, 34, 130], inputs(171, seed=3), others)


REFUSED = {
    "no document": (causal, {}),
    "or": (causal | document.from_lengths([5, 7]), {}),
    "several packings": (causal & document.from_lengths([[5, 7]]), {}),
    "in any order": (causal & document(torch.arange(12) // 5), {}),
    "other keys": (document.from_cu_seqlens([0, 4, 12], [0, 5, 12]), {}),
    "float64": (causal & document.from_lengths([5, 7]), {"dtype": torch.float64}),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_promised_is_refused(name) -> None:
    score, of = REFUSED[name]
    q = torch.randn(1, 2, 12, 16, **of)
    wanted = "compiled kernel" if name == "float64" else r"document.from_lengths\(lengths\) & …"
    for call in (ma.attention, ma.explain):
        with pytest.raises(ma.errors.BackendError, match=wanted):
            call(q, q, q, score, backend="aligned")


def test_slopes_that_want_a_gradient_are_refused_on_a_cpu() -> None:
    q = torch.randn(1, 2, 12, 16)
    slopes = torch.rand(2, requires_grad=True)
    score = causal & document.from_lengths([5, 7]) + ma.alibi(slopes)
    with pytest.raises(ma.errors.BackendError, match="want no gradient"):
        ma.attention(q, q, q, score, backend="aligned")
    with torch.no_grad():
        assert ma.attention(q, q, q, score, backend="aligned").isfinite().all()


def test_a_compiled_function_gives_the_same_bits() -> None:
    tensors = [torch.randn(1, 2, 40, 16, requires_grad=True) for _ in range(3)]
    mask = causal & document.from_lengths([13, 27])

    def step(*inputs):
        return ma.attention(*inputs, mask, backend="aligned")

    out = torch.compile(step, backend="aot_eager", fullgraph=True)(*tensors)
    change = torch.randn_like(out)
    found = out, *torch.autograd.grad(out, tensors, change)
    out = step(*tensors)
    for x, y in zip(found, (out, *torch.autograd.grad(out, tensors, change)), strict=True):
        assert torch.equal(x, y)
