"""The functions of PyTorch's own FlexAttention tests are traced, or taken as they are."""

import pytest
import torch
from pytorch_functions import B, H, N, masks, refused, scores
from torch.nn.attention.flex_attention import create_block_mask

import maskalg as ma
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.normal_form import bound
from maskalg.testing import oracle
from maskalg.tracing.pointwise import pointwise

NAMES = ("batch", "head", "q_idx", "kv_idx")
PHYSICAL = 96  # positions of the paged cache


def grid(kv_len):
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    sizes = (B, H, N, kv_len)
    return [torch.arange(n).view(view) for n, view in zip(sizes, views, strict=True)]


def keys(name):
    return PHYSICAL if name.startswith("paged") else N


def value(expression, score, indices):
    """The score after mask and bias."""
    form = bound(expression)
    env = Environment(dict(zip(NAMES, indices, strict=True)), form.values, score)
    kept = evaluate(form.structure.mask, env)
    return torch.where(kept, evaluate(form.structure.bias, env), -torch.inf).expand_as(score)


@pytest.mark.parametrize("name", list(masks()))
def test_masks(name):
    function, kv_len = masks()[name], keys(name)
    mask = ma.mask(function)
    want = pointwise(function, *grid(kv_len))
    assert (mask.to_dense(N, kv_len, batch=B, heads=H) == want).all()
    # Real numbers, and any dense matrix, have no closed form.
    assert mask.prove().exact == (name not in ("real offset", "without heads"))
    for block in (8, (16, 4)):
        sides = block if isinstance(block, tuple) else (block, block)
        found = mask.blocks(N, kv_len, block=block, batch=B, heads=H)
        assert (found.labels.numpy() == oracle.labels(want.numpy(), *sides)).all()
        assert found.evaluated == 0 or not mask.prove().exact
    block_mask = found.to_flex(batch=B, heads=H)
    theirs = create_block_mask(function, B, H, N, kv_len, "cpu", BLOCK_SIZE=(16, 4))
    assert torch.equal(block_mask.kv_indices, theirs.kv_indices)
    assert torch.equal(block_mask.full_q_num_blocks, theirs.full_q_num_blocks)


@pytest.mark.parametrize("name", list(scores()))
def test_scores(name):
    function, indices = scores()[name], grid(keys(name))
    score = 2 * torch.randn(B, H, N, keys(name))
    want = pointwise(function, score, *indices)
    found = ma.score(function)
    options = {"rtol": 2e-5, "atol": 2e-5, "check_dtype": False}
    torch.testing.assert_close(value(found, score, indices), want, **options)
    torch.testing.assert_close(pointwise(found.to_score_mod(), score, *indices), want, **options)


@pytest.mark.parametrize("name", list(refused()))
def test_what_has_no_formula_is_named_and_served_as_it_is(name):
    function, named = refused()[name]
    with pytest.raises(ma.MaskalgError, match=named) as caught:
        ma.score(function)
    assert "opaque=True" in str(caught.value)
    q, k, v = (torch.randn(B, H, N, 8) for _ in range(3))
    got = ma.attention(q, k, v, ma.score(function, opaque=True), backend="cpu")
    want = pointwise(function, q @ k.mT / 8**0.5, *grid(N)).softmax(-1) @ v
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_tensors_made_like_an_index_are_integers():
    table = torch.arange(9)
    mask = ma.mask(lambda b, h, q, k: table[torch.ones_like(q)] + q.new_full((), 2.0) > k)
    assert (mask.to_dense(4) == (torch.arange(4) < 3)).all()
    real = ma.mask(lambda b, h, q, k: torch.full_like(q, 0.5, dtype=torch.float32) * k < 1)
    assert (real.to_dense(4) == (torch.arange(4) < 2)).all()


def test_one_query():
    """Decoding: tables with a row for the one query there is, and a position that moves it."""
    bias, scale, offset = torch.randn(1, N), torch.randn(1), torch.tensor(19, dtype=torch.int32)

    def score_mod(s, b, h, q, k):
        return torch.where(q + offset >= k, s * scale[q] + bias[q, k], -torch.inf)

    indices = [index[:, :, :1] if i == 2 else index for i, index in enumerate(grid(N))]
    score = torch.randn(B, H, 1, N)
    want = pointwise(score_mod, score, *indices)
    torch.testing.assert_close(value(ma.score(score_mod), score, indices), want.float())
