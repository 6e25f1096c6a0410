"""Plans: every token once, the same work for each rank, and every key that a query keeps."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskalg as ma
from maskalg import MaskTypeError, MaskValueError, alibi, causal, document, parallel, sliding
from maskalg.parallel.assignment import assigned
from maskalg.parallel.picture import picture
from maskalg.parallel.work import Needs
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.strategies import masks

SHORT = 37  # tokens: an odd length


def test_a_small_plan_whole() -> None:
    found = parallel.plan(causal, 16, ranks=2, chunk=2)
    assert found.to_json() == {
        "ranks": [
            {"queries": [[0, 4], [12, 16]], "keys": [[0, 16]]},
            {"queries": [[4, 12]], "keys": [[0, 12]]},
        ]
    }
    assert found.order().tolist() == [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11]
    assert found.tokens(1).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert found.tiles.tolist() == [1 + 2 + 7 + 8, 3 + 4 + 5 + 6]
    assert found.received().tolist() == [8, 4]
    assert found.imbalance == 0
    assert picture(found, 8) == ["██▒▒▒▒██", "▒▒████··"]
    assert picture(found, 2) == ["██", "██"]
    assert str(found).splitlines() == [
        "causal",
        "16 tokens on 2 ranks, chunks of 2; the most work is 0.00 % above the mean",
        "rank     tokens          tiles       keys   received",
        "   0          8             18         16          8",
        "   1          8             18         12          4",
    ]


@given(masks(depth=2), st.integers(1, 5), st.integers(1, 7))
def test_a_rank_has_every_key_that_its_queries_keep(case: Case, ranks: int, chunk: int) -> None:
    found = parallel.plan(case.mask, SHORT, ranks, chunk=chunk, batch=BATCH, heads=HEADS)
    dense = case.mask.to_dense(SHORT, batch=BATCH, heads=HEADS).any(dim=0).any(dim=0)
    seen = torch.zeros(SHORT, dtype=torch.int64)
    for rank, share in enumerate(found.shares):
        own = found.tokens(rank)
        seen[own] += 1
        assert own.tolist() == [x for start, end in share.queries for x in range(start, end)]
        assert len(own) == share.tokens
        held = torch.zeros(SHORT, dtype=torch.bool)
        for start, end in share.keys[0]:
            assert 0 <= start < end <= SHORT
            assert not held[max(start - 1, 0) : end].any()
            held[start:end] = True
        assert not dense[own][:, ~held].any()
    assert (seen == 1).all()
    assert torch.equal(found.order().sort().values, torch.arange(SHORT))
    chunks = np.bincount(found.owner, minlength=ranks)
    assert chunks.max() - chunks.min() <= 1


@given(masks(depth=1), st.integers(1, 7))
def test_work_and_crossing_are_those_of_the_tiles(case: Case, chunk: int) -> None:
    needs = Needs.of(case.mask, SHORT, chunk, BATCH, HEADS)
    found = case.mask.segments(SHORT, block=chunk, batch=BATCH, heads=HEADS)
    visited = (found.labels(found.shape[2]) != 0).sum(dim=(0, 1)).numpy()
    assert (needs.tiles == visited.sum(axis=1)).all()
    count = len(visited)
    for cut in range(count + 1):
        crossing = (visited[cut:, :cut].sum(0) > 0).sum() + (visited[:cut, cut:].sum(0) > 0).sum()
        assert needs.crossing()[cut] == crossing


@given(
    st.lists(st.integers(0, 50), min_size=64, max_size=200),
    st.integers(1, 8),
    st.sampled_from([0.005, 0.01]),
)
def test_ranks_have_the_same_work(work: list[int], ranks: int, above: float) -> None:
    amounts = np.array(work, dtype=np.float64)
    owner = assigned(amounts, np.zeros(len(work) + 1), ranks, above)
    counts = np.bincount(owner, minlength=ranks)
    assert counts.max() - counts.min() <= 1
    loads = np.bincount(owner, weights=amounts, minlength=ranks)
    # A rank may be off by a step of its window, and by what it has more of chunks than others.
    assert loads.max() <= (1 + 2 * above) * loads.mean() + 2 * amounts.max()
    # Ranks are numbered by their first chunk.
    assert (np.diff([(owner == rank).argmax() for rank in range(ranks)]) > 0).all()


def _lengths(tokens: int, mean: float, sigma: float, seed: int) -> torch.Tensor:
    drawn = torch.randn(tokens // 64, generator=torch.Generator().manual_seed(seed))
    lengths = (mean + sigma * drawn).exp().long().clamp(min=16)
    return lengths[: int((lengths.cumsum(0) < tokens).sum()) + 1]


def _masks(tokens: int) -> dict[str, ma.Mask]:
    lengths = _lengths(tokens, 6.2, 1.2, 0)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)[:tokens].int()
    rollouts = torch.where(
        torch.arange(len(lengths)) % 9 > 0, torch.arange(len(lengths)) // 9 * 9, -1
    )
    images = torch.where(ids % 3 == 0, ids, -1)
    side = 1 << (tokens.bit_length() // 2)
    return {
        "causal": causal,
        "window": causal & sliding(tokens // 256),
        "documents": causal & document(ids),
        "prefix trees": ma.shared_prefix(ids, rollouts),
        "Transfusion": causal | ma.spans(images),
        "neighborhood": ma.neighborhood((tokens // side, side), 13),
    }


TOKENS = 1 << 18


@pytest.mark.parametrize("name", _masks(1024))
@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_the_most_work_is_two_per_cent_above_the_mean_at_most(name: str, ranks: int) -> None:
    mask = _masks(TOKENS)[name]
    found = parallel.plan(mask, TOKENS, ranks)
    labels = mask.segments(TOKENS, block=128)
    tiles = np.bincount(labels.row_of.numpy(), weights=labels.tiles.numpy())
    owner = found.owner.repeat(found.chunk // 128)
    loads = np.bincount(owner, weights=tiles, minlength=ranks)
    assert loads.max() <= 1.02 * loads.mean()
    assert found.received().sum() <= TOKENS * (ranks - 1)


def test_calls_do_not_excuse_imbalance() -> None:
    """Tiles of so few tokens take no time beside calls, and are divided evenly all the same."""
    assert parallel.plan(causal, 4, ranks=2, chunk=1).tiles.tolist() == [5, 5]


def test_windows_and_images_stay_whole() -> None:
    """A rank's queries are one range where cuts in between would only cost."""
    for name in ("window", "neighborhood"):
        found = parallel.plan(_masks(TOKENS)[name], TOKENS, ranks=8)
        assert [len(share.queries) for share in found.shares] == [1] * 8, name


def test_layers_count_as_often_as_there_are() -> None:
    near = causal & sliding(64)
    both = parallel.plan([(near, 3), (causal + alibi([0.5]), 1)], 4096, ranks=4)
    assert [str(mask) for mask, _ in both.masks] == [
        "causal & sliding(64)",
        str((causal + alibi([0.5])).mask),
    ]
    once = [parallel.plan(mask, 4096, ranks=4) for mask in (near, causal)]
    assert both.tiles.sum() == 3 * once[0].tiles.sum() + once[1].tiles.sum()
    assert both.received(0).sum() < both.received(1).sum()
    assert both.to_json()["ranks"][3]["keys"] == [list(part) for part in both.shares[3].keys[1]]
    assert str(both).startswith(
        "causal & sliding(64), 3 layers\n(causal + alibi(slopes[1])).mask, 1 layers\n"
    )


def test_heads_and_batch_entries_share_a_plan() -> None:
    by_head = causal & sliding(torch.tensor([16, 256]))
    found = parallel.plan(by_head, 1024, ranks=4, chunk=32)
    wide = parallel.plan(causal & sliding(256), 1024, ranks=4, chunk=32)
    narrow = parallel.plan(causal & sliding(16), 1024, ranks=4, chunk=32)
    assert found.tiles.sum() == wide.tiles.sum() + narrow.tiles.sum()


def test_what_is_refused() -> None:
    with pytest.raises(MaskValueError, match="plan: 64 tokens in chunks of 16 are 4 chunks, and 8"):
        parallel.plan(causal, 64, ranks=8, chunk=16)
    with pytest.raises(MaskValueError, match="are 2000000000 chunks, too many for 8 ranks"):
        parallel.plan(causal, 2 * 10**9, ranks=8, chunk=1)
    with pytest.raises(MaskTypeError, match="plan: masks must be a mask, or pairs of a mask and"):
        parallel.plan(ma.softcap(30), 64, ranks=8)
    with pytest.raises(MaskTypeError, match="got causal"):
        parallel.plan([causal, causal], 64, ranks=8)
    with pytest.raises(MaskValueError, match="plan: ranks must be an integer >= 1, got 0"):
        parallel.plan(causal, 64, ranks=0)
    with pytest.raises(MaskTypeError, match=r"plan: length must be an integer >= 1, got 6\.5"):
        parallel.plan(causal, 6.5, ranks=2)


@pytest.mark.parametrize("rank", [-1, 2])
def test_ranks_that_a_plan_does_not_have(rank: int) -> None:
    with pytest.raises(ma.MaskValueError, match=f"between 0 and 1, got {rank}"):
        parallel.plan(causal, 128, 2).tokens(rank)


def test_attention_without_a_group_of_processes() -> None:
    query = torch.randn(1, 1, 8, 4)
    with pytest.raises(ma.MaskValueError, match=r"no group of processes.*torchrun"):
        parallel.attention(query, query, query, causal, parallel.plan(causal, 8, 1))


def test_the_order_of_a_load_balancer_is_where_the_tensors_are() -> None:
    found = parallel.plan(causal, 1024, 2)
    order = found.load_balancer()._generate_indices()
    back = found.load_balancer()._generate_indices(restore=True)
    assert order.shape == (1, 1024) and torch.equal(order[0], found.order())
    assert torch.equal(order[0][back[0]], torch.arange(1024))
    assert found.load_balancer("meta")._generate_indices().device.type == "meta"


def test_a_copy_of_a_plan_goes_with_the_copied_mask():
    ids = torch.arange(64) // 9
    ids.add_(1)
    mask = causal & document(ids)
    made = parallel.plan(mask, 64, 2, chunk=8)
    assert made.versions == ((1,),)
    both = mask, made
    for again, copied in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
        assert copied.masks[0][0] == again and copied.versions == (None,)
        assert copied.to_json() == made.to_json()
