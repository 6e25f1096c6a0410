"""Bits of pairs in place of masks that cost more to compute, against float64."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.backends.triton import kept, plan
from maskalg.engine.memory import Memory
from maskalg.schedule.summaries import labels
from tests.cases.kept_bits import BY_DISTANCE, Anew, masks

triton = pytest.importorskip("triton", reason="needs Triton")
tl = triton.language

LENGTH = 160

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.fixture(autouse=True)
def bits(monkeypatch):
    monkeypatch.setattr(labels, "_FEWEST_TILES", 0)
    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    monkeypatch.setattr(kept, "_MEMORY", Anew())


OF_HEADS = ("of heads", "biased")


def check(mask, q_len, kv_len, batch=1, heads=2):
    """Compare the output and all gradients."""
    torch.manual_seed(0)
    q, *_ = tensors = [
        torch.randn(batch, heads, n, 16, requires_grad=True) for n in (q_len, kv_len, kv_len)
    ]
    change = torch.randn(q.shape)
    found, wanted = [], []
    for results, backend, dtype in (
        (found, "triton", torch.float32),
        (wanted, "reference", torch.float64),
    ):
        out = ma.attention(*[t.to(dtype) for t in tensors], mask, backend=backend)
        results += [out, *torch.autograd.grad(out, tensors, change.to(dtype))]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", list(masks(LENGTH)))
def test_attention(name):
    batch, heads = (2, 4) if name in OF_HEADS else (1, 2)
    check(masks(LENGTH)[name], LENGTH, LENGTH, batch, heads)
    assert kept._MEMORY.made > 0


@pytest.mark.parametrize("name", ["of heads", "no keys", "permutation, sliding", "tree", "biased"])
def test_tiles_of_long_calls(name, monkeypatch):
    """Past a number of pairs, the bits of partial tiles alone are kept."""
    monkeypatch.setattr(kept, "_MOST_BITS", 1 << 14)
    monkeypatch.setattr(kept, "_AT_ONCE", 1 << 13)
    kinds, worth = [], plan.bits_worth

    def seen(*args):
        kinds.append(worth(*args)[0])
        return kinds[-1], False

    monkeypatch.setattr(plan, "bits_worth", seen)
    batch, heads = (2, 4) if name in OF_HEADS else (1, 2)
    check(masks(LENGTH)[name], LENGTH, LENGTH, batch, heads)
    assert set(kinds) == {"tiles"} and kept._MEMORY.made > 0


@pytest.mark.parametrize("most", [1 << 29, 1 << 14])
def test_ids_in_no_order(most, monkeypatch):
    """Their bits are looked up in both passes, and in those of later masks of the structure."""
    monkeypatch.setattr(kept, "_MOST_BITS", most)
    monkeypatch.setattr(kept, "_FEWEST_COUNTED", 0)
    monkeypatch.setattr(kept, "_SCATTERED", kept.Recent(8))
    for ids in (torch.arange(LENGTH) * 7 % 5, torch.arange(LENGTH) // 50):
        mask = ma.causal & ma.document(ids)
        check(mask, LENGTH, LENGTH)
        query = torch.randn(1, 1, LENGTH, 16)
        told = ma.explain(query, query, query, mask, backend="triton").elements
        assert "looked up" in told and "MiB for gradients" in told
    mask = ma.document(torch.arange(LENGTH) // 50)
    assert ma.explain(query, query, query, mask, backend="triton").elements == ""


def test_tiles_that_take_too_much_memory(monkeypatch):
    """Then the mask is computed."""
    monkeypatch.setattr(kept, "_MOST_BITS", 1 << 14)
    monkeypatch.setattr(kept, "MOST_OF_TILES", 4096)
    monkeypatch.setattr(kept, "_MEMORY", Memory(kept.MOST_REMEMBERED, kept._bytes_of))
    query = torch.randn(1, 1, LENGTH, 16)
    check(masks(LENGTH)["strided"], LENGTH, LENGTH)
    told = ma.explain(query, query, query, masks(LENGTH)["strided"], backend="triton").elements
    assert told.startswith("computed, which is slower: a bit for each pair of partial tiles")


@pytest.mark.parametrize("q_len, kv_len", [(135, 170), (170, 135)])
def test_lengths(q_len, kv_len):
    check(ma.causal & BY_DISTANCE, q_len, kv_len, batch=2)


def test_gradients_of_a_bias():
    """Its kernel looks the bits up too."""
    found = []
    for backend, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        torch.manual_seed(0)
        query = torch.randn(1, 4, LENGTH, 16).to(dtype)
        slopes = torch.rand(4).to(dtype).requires_grad_()
        score = (ma.causal & BY_DISTANCE) + ma.alibi(slopes)
        out = ma.attention(query, query, query, score, backend=backend)
        change = torch.linspace(0, 1, 16, dtype=dtype).expand_as(out)
        found.append(torch.autograd.grad(out, slopes, change)[0].double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=2e-5)


def test_short_calls_compute_the_mask():
    check(ma.causal & BY_DISTANCE, 63, 140)
    assert not kept._MEMORY.made


def test_masks_are_followed_as_they_change():
    """What is remembered is of a tensor as it was."""
    order = torch.arange(LENGTH)
    mask = ma.permutation(order)
    query = torch.randn(1, 1, LENGTH, 16)
    first = ma.attention(query, query, query, mask, backend="triton")
    order.copy_(order.flip(0))
    found = ma.attention(query, query, query, mask, backend="triton")
    wanted = ma.attention(query, query, query, mask, backend="reference")
    assert not torch.allclose(first, found)
    torch.testing.assert_close(found, wanted)


@triton.jit
def _places(out_ptr, bits_ptr, words, SIZE: tl.constexpr, bits_of: tl.constexpr):
    row, column = tl.arange(0, 16), tl.arange(0, SIZE)
    for first in range(0, words * 32, SIZE):
        word, bit = bits_of(bits_ptr, (row * words)[:, None], (first + column)[None, :])
        at = row[:, None] * (words * 32) + first + column[None, :]
        tl.store(out_ptr + at, (word & bit) != 0)


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
def test_every_place_of_a_row(size):
    from maskalg_kernels.kept_bits import bits_of

    words = torch.randint(-(2**31), 2**31 - 1, (16, 16), dtype=torch.int32)
    out = torch.zeros(16, 16 * 32, dtype=torch.bool)
    _places[(1,)](out, words, 16, size, bits_of)
    wanted = (words[:, :, None] >> torch.arange(32)) & 1
    assert torch.equal(out, wanted.flatten(1).bool())


@pytest.mark.parametrize("name", ["permutation, sliding", "tree", "of heads", "no keys"])
def test_tiles_are_counted_once(name, monkeypatch):
    """Counts of tiles are those of the first mask's blocks; later ones wait for nothing."""
    seen, counted = [], kept.torch.Tensor.tolist
    monkeypatch.setattr(kept, "_FEWEST_COUNTED", 0)
    kept._COUNTS.clear()
    monkeypatch.setattr(plan, "tiles_of_counts", lambda *counts: seen.append(counts) or "small")
    mask = masks(LENGTH)[name]
    query = torch.randn(1, 4, LENGTH, 16)
    ma.attention(query, query, query, mask, backend="triton")
    small, large = [mask.blocks(LENGTH, block=side, heads=4).labels > 0 for side in (64, 128)]
    runs = torch.cat([large[..., :1, :], large[..., 1:, :] & ~large[..., :-1, :]], dim=-2).sum()
    wanted = [small.sum(-1).float().mean(), large.sum(-1).float().mean(), large.sum() / runs]
    assert seen[0] == pytest.approx([float(each) for each in wanted])
    monkeypatch.setattr(kept.torch.Tensor, "tolist", lambda _: pytest.fail("a wait"))
    ma.attention(query, query, query, mask, backend="triton")
    values = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in mask.parameters.items()
    }
    ma.attention(query, query, query, mask.bind(**values), backend="triton")
    monkeypatch.setattr(kept.torch.Tensor, "tolist", counted)
    assert len(set(seen)) == 1
