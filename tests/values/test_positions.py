"""Rows of queries and keys at other positions than their row numbers: `at`."""

import pickle

import pytest
import torch

import maskalg as ma
from maskalg import (
    Score,
    alibi,
    batch,
    causal,
    document,
    kv_idx,
    prefix,
    q_idx,
    scalar,
    sliding,
    table,
)
from maskalg.engine.normal_form import bound
from maskalg.testing import assert_attention_close, assert_same_mask

WINDOW = causal & (sliding(6) | prefix(2))
SLOPES = torch.tensor([0.5, 0.25])
IDS = torch.tensor([0] * 7 + [1] * 9 + [2] * 8)


def in_place(score, q, kv):
    """The dense matrix of a mask over its own positions, read at these; negative ones drop."""
    whole = score.to_dense(24)
    kept = whole[:, :, q.clamp(min=0)[:, None], kv.clamp(min=0)]
    return kept & (q >= 0)[:, None] & (kv >= 0)


@pytest.mark.parametrize("now", [3, 9, 21])
def test_a_ring_holds_the_last_tokens(now):
    """Slot s of a ring of 8 holds the last token t <= now with t % 8 == s, or none yet."""
    slots = torch.tensor(
        [max((t for t in range(now + 1) if t % 8 == s), default=-1) for s in range(8)]
    )
    last, size = scalar(now, "now", low=0), scalar(8, "size", low=1)
    wanted = in_place(WINDOW, torch.tensor([now]), slots)
    by_formula = WINDOW.at(q=q_idx + last, kv=last - (last - kv_idx) % size)
    for ring in (by_formula, WINDOW.at(q=now, kv=slots), WINDOW.at(now, slots.tolist())):
        assert torch.equal(ring.to_dense(1, 8), wanted)
        assert ring.prove().exact
        assert ring.blocks(1, 8, block=2).evaluated == 0
    assert by_formula.bind(now=now + 1).to_dense(1, 8).shape == (1, 1, 1, 8)


@pytest.mark.parametrize("now", [3, 9, 21])
def test_slots_of_a_ring_that_are_not_written_have_no_document(now):
    mask = causal & sliding(6) & document(IDS)
    last, size = scalar(now, "now", low=0), scalar(8, "size", low=1)
    slots = now - (now - torch.arange(8)) % 8
    ring = mask.at(q=q_idx + last, kv=last - (last - kv_idx) % size)
    assert torch.equal(ring.to_dense(1, 8), in_place(mask, torch.tensor([now]), slots))
    assert torch.equal(ring.blocks(1, 8, block=1).labels > 0, ring.to_dense(1, 8))
    tensors = torch.randn(1, 2, 1, 8), *torch.randn(2, 1, 2, 8, 8)
    found, wanted = (ma.attention(*tensors, ring, backend=each) for each in ("cpu", "reference"))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("now", [3, 9, 21])
def test_slots_of_a_ring_that_are_not_written_have_no_block(now):
    kept = torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) < 0.7
    mask = causal & ma.block_table(kept, 3)
    last, size = scalar(now, "now", low=0), scalar(8, "size", low=1)
    slots = now - (now - torch.arange(8)) % 8
    ring = mask.at(q=q_idx + last, kv=last - (last - kv_idx) % size)
    assert torch.equal(ring.to_dense(1, 8), in_place(mask, torch.tensor([now]), slots))
    assert torch.equal(ring.blocks(1, 8, block=1).labels > 0, ring.to_dense(1, 8))


def test_media_before_the_first_are_dropped():
    media = ma.media([0, 2, 5], 3)
    by_formula = media.at(kv=kv_idx - 4).to_dense(9, 13)
    assert torch.equal(by_formula, media.at(kv=torch.arange(-4, 9)).to_dense(9, 13))
    assert by_formula[..., 4:].any() and not by_formula[..., :4].any()
    with pytest.raises(ma.MaskValueError, match="before its first entry"):
        (media.at(kv=kv_idx - 4) | table(torch.ones(9).bool())[(kv_idx - 4) // 3]).to_dense(9, 13)


def test_entries_before_the_first_are_read_only_where_pairs_are_dropped():
    flags = table(torch.ones(30).bool(), "flags")
    kept = flags[kv_idx].at(kv=20 - kv_idx).to_dense(1, 30)[0, 0, 0]
    assert kept.tolist() == [True] * 21 + [False] * 9
    with pytest.raises(ma.MaskValueError, match=r"flags would be read at 20 - kv_idx = -9"):
        flags[20 - kv_idx].to_dense(1, 30)
    moved = flags[kv_idx].at(kv=20 - kv_idx)
    assert torch.equal((moved | causal).to_dense(1, 30), moved.to_dense(1, 30))
    assert torch.equal((~moved).to_dense(1, 30), ~moved.to_dense(1, 30))
    inside, entry = 20 - kv_idx >= 0, flags[20 - kv_idx]
    assert torch.equal((inside & entry).to_dense(1, 30), moved.to_dense(1, 30))
    for mask in (moved | entry, inside | entry, ~inside & entry, moved ^ entry, ~moved & entry):
        with pytest.raises(ma.MaskValueError, match=r"flags would be read at 20 - kv_idx = -9"):
            mask.to_dense(1, 30)
    weights = ma.bias(table(torch.ones(30), "weights")[20 - kv_idx])
    tensors = torch.randn(1, 1, 1, 8), *torch.randn(2, 1, 1, 30, 8)
    assert ma.attention(*tensors, (moved & causal) + weights).isfinite().all()
    with pytest.raises(ma.MaskValueError, match=r"weights would be read at 20 - kv_idx = -9"):
        ma.attention(*tensors, (moved | causal) + weights)
    with pytest.raises(ma.MaskValueError, match="reads 41"):
        flags[kv_idx].at(kv=40 - kv_idx).to_dense(1, 30)


def test_pages_of_a_cache_are_read_by_their_table():
    """Two sequences share one pool of pages of 4; each sees its own tokens only."""
    owner = torch.tensor([[2, -1, 0, 1, -1], [-1, 0, -1, -1, 1]])  # logical page, by sequence
    pool = table(owner, "pages")[batch, kv_idx // 4] * 4 + kv_idx % 4
    mask = (causal & sliding(6)).at(q=q_idx + table(torch.tensor([9, 6]))[batch], kv=pool)
    found = mask.to_dense(2, 20)
    for entry, first in enumerate((9, 6)):
        places = torch.stack([owner[entry] * 4 + i for i in range(4)], 1).flatten()
        places = torch.where(places < 0, -1, places)
        wanted = in_place(causal & sliding(6), torch.arange(first, first + 2), places)
        assert torch.equal(found[entry], wanted[0])
    assert mask.prove().exact


def test_attention_of_reordered_tokens_is_that_of_the_tokens_in_order():
    """Outputs, lse and all gradients, masks, documents and biases of distances alike."""
    torch.manual_seed(0)
    order = torch.randperm(24)
    score = causal & document(IDS) + alibi(SLOPES)
    q, k, v = (torch.randn(2, 2, 24, 8, requires_grad=True) for _ in range(3))
    grad = torch.randn(2, 2, 24, 8)
    out = ma.attention(q, k, v, score)
    wanted = torch.autograd.grad((out * grad).sum(), (q, k, v))
    turned = [x.detach()[:, :, order].requires_grad_() for x in (q, k, v)]
    moved = ma.attention(*turned, score.at(q=order, kv=order))
    torch.testing.assert_close(moved, out[:, :, order])
    found = torch.autograd.grad((moved * grad[:, :, order]).sum(), turned)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other[:, :, order])


@pytest.mark.parametrize(
    "score",
    [
        WINDOW.at(q=q_idx + scalar(13, "now", low=0), kv=20 - (20 - kv_idx) % 17),
        (WINDOW + alibi(SLOPES)).at(q=torch.arange(3, 14), kv=torch.randperm(19) - 2),
        (causal & document(IDS)).at(q=torch.arange(11).flip(0), kv=torch.randperm(19)),
        alibi(SLOPES).at(kv=torch.randperm(19)),
        (~causal).at(q=5),
    ],
    ids=["ring", "scattered", "documents", "bias", "one place"],
)
def test_backends_agree_at_odd_lengths(score):
    assert_attention_close(score, 11, 19, heads=2)


def test_it_is_a_substitution():
    assert_same_mask(causal.at(q=q_idx + 3), causal.shift(q=3), 5, 9)
    assert_same_mask(causal.at(q=kv_idx, kv=q_idx), kv_idx >= q_idx, 5, 9)
    assert_same_mask(WINDOW.at(kv=kv_idx // 2).shift(kv=3), WINDOW.at(kv=(kv_idx + 3) // 2), 7, 9)
    a, b, places = causal, sliding(3), torch.tensor([4, -1, 2, 0, 3])
    assert_same_mask((a | b).at(kv=places), a.at(kv=places) | b.at(kv=places), 5)
    assert_same_mask((~a).at(kv=places), ma.everything.at(kv=places) & ~a.at(kv=places), 5)
    assert causal.at() is causal


def test_what_it_prints_and_keeps_apart():
    mask = WINDOW.at(q=70, kv=torch.arange(8))
    assert repr(mask) == "(causal & (sliding(6) | prefix(2))).at(q=70, kv=kv_positions[kv_idx])"
    assert set(mask.parameters) == {"window", "prefix", "q_position", "kv_positions"}
    other = WINDOW.at(q=71, kv=torch.arange(9)).bind(window=3)
    assert bound(mask).structure is bound(other).structure
    assert repr(causal.at(kv=kv_idx // 2 - 1)) == "causal.at(kv=kv_idx // 2 - 1)"
    assert repr(pickle.loads(pickle.dumps(mask))) == repr(mask)
    score = (causal + alibi(SLOPES)).at(q=q_idx + 1)
    assert isinstance(score, Score) and repr(score) == "(causal + alibi(slopes[2])).at(q=q_idx + 1)"


def test_positions_that_are_plainly_not_negative_add_no_condition():
    declared = table(torch.arange(8), low=0)[kv_idx]
    for place in (kv_idx // 2, declared, kv_idx % 3 + 1, scalar(3, low=0), ma.minimum(kv_idx, 3)):
        assert "and" not in causal.at(kv=place).mask_node.ops(), place
    assert "and" in causal.at(kv=kv_idx - 1).mask_node.ops()


@pytest.mark.parametrize(
    ("place", "kind", "said"),
    [
        (kv_idx / 2, TypeError, "Got a real number"),
        (1.5, TypeError, "Got float"),
        (causal, TypeError, "Got Mask"),
        (table(torch.arange(3)), TypeError, "table(x)[kv_idx]"),
        (-1, ValueError, "an integer >= 0, got -1"),
        (2**31, ValueError, "32-bit"),
        (torch.ones(3), TypeError, "Write kv.long()"),
        (torch.ones(1, 2, 3).long(), ValueError, "[], [length] or [batch, length], got [1, 2, 3]"),
    ],
)
def test_what_is_no_position_is_refused(place, kind, said):
    with pytest.raises(kind) as raised:
        causal.at(kv=place)
    assert said in str(raised.value) and "at(kv=…)" in str(raised.value)


def test_short_tables_are_refused_at_the_call():
    with pytest.raises(ValueError, match="kv_positions"):
        causal.at(kv=torch.arange(4)).to_dense(2, 5)


def test_text_writes_positions():
    from maskalg.parsing import parse

    written = parse("(causal & sliding(3)).at(q=4, kv=[3, 4, -1, 2])")
    assert written.to_dense(1, 4)[0, 0].int().tolist() == [[1, 1, 0, 1]]


def test_compiled_functions_move_positions():
    @torch.compile(backend="eager", fullgraph=True)
    def step(q, k, now, slots):
        return ma.attention(q, k, k, (causal & sliding(5)).at(q=now, kv=slots))

    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 8, 8)
    for now in (6, 7, 9):
        slots = now - (now - torch.arange(8)) % 8
        wanted = ma.attention(q, k, k, (causal & sliding(5)).at(q=now, kv=slots))
        torch.testing.assert_close(step(q, k, now, slots), wanted)
