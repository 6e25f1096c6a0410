"""Tiles that begin with documents, in Triton's interpreter: the same bits however packed."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, document
from tests.cases.aligned import MASKS, attend, check_alone, check_moved, inputs

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTHS = [37, 1, 0, 32, 19]


@pytest.mark.parametrize("name", list(MASKS))
def test_documents_alone_and_the_reference(name):
    given = inputs(sum(LENGTHS), seed=1)
    packed = check_alone(name, LENGTHS, given)
    wanted = attend(name, LENGTHS, [x.double() for x in given], backend="reference")
    for found, exact in zip(packed, wanted, strict=True):
        assert (found - exact).abs().max() < 5e-6


@pytest.mark.parametrize("weight", ["sink", "relu"])
def test_weights(weight):
    check_alone("causal", [5, 40], inputs(45, seed=2), weight)


@pytest.mark.parametrize("name", ["causal", "restarted", "softcap"])
@pytest.mark.parametrize("others", [[1], [18, 0, 5]])
def test_other_places_beside_poison_and_in_a_batch(name, others):
    check_moved(name, [7, 34], inputs(41, seed=3), others)


@pytest.mark.parametrize("dim", [16, 24])
def test_any_strides(dim):
    """Heads of a token together, and an output's gradient that is one number, expanded."""
    lengths, given = [21, 40], inputs(61, dim, seed=4)
    *tensors, _ = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    one = torch.ones(1, 1, 1, 1).expand_as(given[3])
    found = check_alone("causal", lengths, [*tensors, one])
    assert [x.stride() for x in found[1:3]] == [x.stride() for x in tensors[:2]]
    apart = attend("causal", lengths, [*given[:3], torch.ones_like(given[3])])
    for x, y in zip(found, apart, strict=True):
        assert torch.equal(x, y)


def test_lse_and_positions_past_the_documents():
    q, k, v, _ = inputs(50, seed=5)
    mask = causal & document.from_cu_seqlens([0, 20, 41], total=50)
    out, lse = ma.attention(q, k, v, mask, return_lse=True, backend="aligned")
    alone = causal & document.from_lengths([21])
    own = [x[:, :, 20:41] for x in (q, k, v)]
    wanted = ma.attention(*own, alone, return_lse=True, backend="aligned")
    assert torch.equal(out[:, :, 20:41], wanted[0]) and torch.equal(lse[:, :, 20:41], wanted[1])
    assert not out[:, :, 41:].any() and (lse[:, :, 41:] == float("-inf")).all()


def test_fewer_queries_than_keys_and_ids_written_to():
    ids = document.from_lengths([9, 31, 14]).shift(q=0)
    q, k, v, _ = inputs(54, seed=6)
    found = ma.attention(q[:, :, :23], k, v, causal & ids, backend="aligned")
    wanted = ma.attention(q, k, v, causal & ids, backend="aligned")
    assert torch.equal(found, wanted[:, :, :23])
    table = torch.zeros(54, dtype=torch.int32)
    mask = causal & document(table, order="ascending")
    for boundaries in ([20], [3, 5, 30, 53]):
        table.zero_()
        for at in boundaries:
            table[at:] += 1
        out = ma.attention(q, k, v, mask, backend="aligned")
        exact = ma.attention(q, k, v, mask, backend="reference")
        assert (out - exact).abs().max() < 5e-6


def test_gradients_of_slopes_are_those_of_the_default():
    slopes = torch.tensor([0.5, 0.2])
    q, k, v, change = inputs(40, seed=7)
    found = []
    for backend in ("aligned", "triton"):
        leaf = slopes.clone().requires_grad_()
        score = causal & document.from_lengths([13, 27]) + ma.alibi(leaf)
        out = ma.attention(q, k, v, score, backend=backend)
        found += torch.autograd.grad(out, [leaf], change)
    torch.testing.assert_close(*found)


def test_explain_tells():
    q = torch.randn(1, 2, 40, 16)
    told = ma.explain(q, q, q, causal & document.from_lengths([40]), backend="aligned")
    assert told.backend == "aligned"
    assert told.tier == "plain Triton, forward, tiles begin with documents"
