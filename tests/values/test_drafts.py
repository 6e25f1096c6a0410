"""Blocks of drafted tokens beside the sequence that they continue."""

from __future__ import annotations

import pytest
import torch

import maskalg as ma
from maskalg.testing import assert_labels_exact, oracle


@pytest.mark.parametrize("within", [ma.everything, ma.causal], ids=["whole", "causal"])
@pytest.mark.parametrize("length, block, count", [(9, 4, 3), (0, 2, 2), (7, 1, 5), (5, 3, 0)])
def test_random_anchors(within: ma.Mask, length: int, block: int, count: int) -> None:
    torch.manual_seed(0)
    for shape in ((count,), (2, count)):
        anchors = torch.randint(-2, length + 3, shape)
        total = length + block * count
        mask = ma.drafts(anchors, length, block) & within
        kept = oracle.drafts(anchors, length, block, q_len=total, kv_len=total)
        wanted = torch.from_numpy(kept) & within.to_dense(total)
        assert torch.equal(mask.to_dense(total, batch=len(kept)), wanted.expand_as(wanted))
        assert_labels_exact(mask, total, block=4)


def test_proofs_are_exact_and_certified() -> None:
    anchors = torch.tensor([3, 9, 4])
    for mask in (ma.drafts(anchors, 16, 4), ma.drafts(anchors, 16, 4) & ma.causal):
        proof = mask.prove()
        assert proof.exact
        assert "verified  sound and exact" in str(proof.check())
    assert ma.drafts(anchors, 16, 4).shift(q=16).prove().exact


def test_blocks_alone_are_queries() -> None:
    mask = ma.drafts([2, 3], 4, 2)
    whole = mask.to_dense(8)
    assert torch.equal(mask.shift(q=4).to_dense(4, 8), whole[..., 4:, :])


def test_documents_of_blocks() -> None:
    """A block sees what stands before its anchor in the anchor's document."""
    ids, anchors = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([2, 4])
    of_all = torch.cat([ids, ids[anchors].repeat_interleave(2)])
    mask = ma.drafts(anchors, 6, 2) & ma.document(of_all)
    assert mask.to_dense(10)[0, 0, 6:].int().tolist() == [
        [1, 1, 0, 0, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0, 1, 1],
        [0, 0, 0, 1, 0, 0, 0, 0, 1, 1],
    ]


def test_calls_with_more_blocks_are_refused() -> None:
    with pytest.raises(ma.MaskValueError, match="Give drafts an anchor for each block"):
        ma.drafts([1], 3, 2).to_dense(8)


@pytest.mark.parametrize(
    "arguments, part",
    [
        (([0.5], 3, 2), "anchors"),
        (([1], -1, 2), "length must be an integer >= 0, got -1"),
        (([1], 3, 0), "block must be an integer >= 1, got 0"),
        (([[[1]]], 3, 2), "anchors"),
    ],
)
def test_errors(arguments: tuple[list[int], int, int], part: str) -> None:
    with pytest.raises((TypeError, ValueError), match=part):
        ma.drafts(*arguments)
