"""Expressions as FlexAttention functions: the same matrix there, the same structure back."""

import pytest
import torch
from flex_masks import N, masks
from flex_scores import B, H, scores
from flex_scores import N as LENGTH
from torch.nn.attention.flex_attention import create_mask, flex_attention

import maskalg as ma
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import BIASES, CATALOGUE
from maskalg.testing.catalogue import LENGTH as POSITIONS
from maskalg.tracing.pointwise import pointwise


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_the_catalogue_in_flex_attention(name):
    mask = CATALOGUE[name].mask
    got = create_mask(mask.to_mask_mod(), BATCH, HEADS, 24, 30, "cpu")
    assert (got == mask.to_dense(24, 30, batch=BATCH, heads=HEADS)).all()
    again = ma.mask(mask.to_mask_mod())
    assert (again.to_dense(24, 30, batch=BATCH, heads=HEADS) == got).all()


@pytest.mark.parametrize("name", list(masks()))
def test_there_and_back(name):
    case = masks()[name]
    function, q_len, kv_len = case if isinstance(case, tuple) else (case, N, N)
    mask = ma.mask(function)
    got = create_mask(mask.to_mask_mod(), B, H, q_len, kv_len, "cpu")
    assert (got == mask.to_dense(q_len, kv_len, batch=B, heads=H)).all()


def test_structures_come_back():
    ids = torch.arange(9) // 4
    for mask in (ma.causal, ma.sliding(4), ma.causal & ma.document(ids), ma.everything):
        back = ma.mask(mask.to_mask_mod())
        assert back.mask_node.canonical == mask.mask_node.canonical or mask.parameters
        assert back.prove().exact
    assert ma.mask(ma.causal.to_mask_mod()) == ma.causal


@pytest.mark.parametrize("name", list(scores()))
def test_scores_there_and_back(name):
    function = scores()[name]
    score = torch.randn(B, H, LENGTH, LENGTH)
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    sizes = (B, H, LENGTH, LENGTH)
    grid = [torch.arange(n).view(v) for n, v in zip(sizes, views, strict=True)]
    got = pointwise(ma.score(function).to_score_mod(), score, *grid)
    want = pointwise(function, score, *grid)
    torch.testing.assert_close(got, want.to(got.dtype), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", list(BIASES))
def test_every_bias_in_flex_attention(name):
    """What the oracle adds, in two lengths; a score of its own is kept, also under a cap."""
    bias = BIASES[name]
    tensors = [tensor.detach() for tensor in bias.tensors()]
    score = torch.randn(BATCH, HEADS, POSITIONS, POSITIONS, dtype=torch.float64)
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    grid = [torch.arange(n).view(v) for n, v in zip(score.shape, views, strict=True)]
    capped = ma.softcap(5.0) @ bias.build(*tensors)
    got = pointwise(capped.to_score_mod(), score, *grid)
    want = score + torch.from_numpy(bias.matrix(POSITIONS, POSITIONS))
    torch.testing.assert_close(got, 5 * torch.tanh(want / 5), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", ["causal", "document", "prefix LM per batch", "neighborhood on an image", "BigBird"]
)
def test_masks_under_torch_compile(name):
    """One graph: nothing of the function falls back to Python."""
    mask_mod = CATALOGUE[name].mask.to_mask_mod()
    compiled = torch.compile(mask_mod, backend="eager", fullgraph=True)
    indices = torch.arange(2).view(-1, 1, 1), torch.tensor(1), torch.arange(9)[:, None]
    got = compiled(*indices, torch.arange(11))
    assert torch.equal(got, mask_mod(*indices, torch.arange(11)))


@pytest.mark.parametrize("name", ["alibi", "T5 decoder"])
def test_scores_under_torch_compile(name):
    bias = BIASES[name]
    tensors = [tensor.detach() for tensor in bias.tensors()]
    score_mod = (ma.causal + bias.build(*tensors)).to_score_mod()
    compiled = torch.compile(score_mod, backend="eager", fullgraph=True)
    indices = torch.zeros(9, 11), torch.tensor(0), torch.tensor(1), torch.arange(9)[:, None]
    assert torch.equal(compiled(*indices, torch.arange(11)), score_mod(*indices, torch.arange(11)))


@pytest.mark.parametrize("name", ["relative-causal", "buckets"])
def test_flex_attention_takes_them(name):
    score = ma.score(scores()[name])
    q, k, v = (torch.randn(B, H, LENGTH, 8) for _ in range(3))
    got = flex_attention(q, k, v, score_mod=score.to_score_mod())
    want = ma.attention(q, k, v, score, backend="reference")
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_opaque_functions_are_called():
    def odd(b, h, q, k):
        return torch.stack([q, k * 2]).argmax() == 0

    mask = ma.causal & ma.mask(odd, opaque=True)
    got = create_mask(mask.to_mask_mod(), 1, 1, 12, 12, "cpu")
    assert (got == mask.to_dense(12, batch=1, heads=1)).all()


def test_a_choice_that_numbers_make():
    n = ma.scalar(5)
    for mask in (ma.where(n > 3, ma.q_idx, 0) >= ma.kv_idx, ma.where(n > 7, ma.causal, ~ma.causal)):
        got = create_mask(mask.to_mask_mod(), 1, 1, 9, 9, "cpu")
        assert torch.equal(got[0, 0], mask.to_dense(9)[0, 0])


def test_numbers_are_rounded_as_masks_round_them():
    mask = ma.scalar(25, "n") * ma.scalar(0.6, "r") <= ma.q_idx
    got = create_mask(mask.to_mask_mod(), 1, 1, 20, 1, "cpu")
    assert torch.equal(got, mask.to_dense(20, 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_small_integers_there_and_back(dtype):
    kinds = ma.table(torch.tensor([3, 100, 5, 120], dtype=dtype), "kinds")
    mask = (kinds[ma.q_idx] * 3 >= ma.kv_idx + 200) | (
        ma.where(ma.head == 0, kinds[ma.q_idx], 2) + kinds[ma.kv_idx] > 200
    )
    again = ma.mask(mask.to_mask_mod())
    assert (again.to_dense(4, heads=2) == mask.to_dense(4, heads=2)).all()
