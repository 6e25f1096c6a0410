"""Masks written in other libraries' formats and read back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import causal, document, prefix, sliding
from maskalg.questions import rows
from maskalg.testing import assert_same_mask, oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import masks

IDS = torch.tensor([0] * 5 + [1] * 9 + [2] * 6)
LENGTHS = ((20, 20), (17, 20), (20, 13), (1, 5), (5, 1), (0, 3), (3, 0))


@pytest.mark.parametrize("name", CATALOGUE)
def test_flashmask_comes_back(name: str) -> None:
    """Every mask of the catalogue that two ranges a key can hold, at several lengths."""
    case = CATALOGUE[name]
    for q_len, kv_len in LENGTHS:
        kept = case.dense(q_len, kv_len)
        padded = np.pad(~np.broadcast_to(kept, (*kept.shape[:2], q_len, kv_len)), 1)[1:-1, 1:-1]
        ranges = (padded[:, :, 1:] & ~padded[:, :, :-1]).sum(axis=2).max(initial=0)
        try:
            indices, is_causal = ma.to_flashmask(case.mask, q_len, kv_len, batch=BATCH, heads=HEADS)
        except ma.MaskValueError:
            assert ranges > 2
            continue
        assert indices.dtype == torch.int32 and indices.shape[2] == kv_len
        mask = ma.flashmask(indices, causal=is_causal)
        assert_same_mask(mask, kept, q_len, kv_len, batch=BATCH, heads=HEADS)
        found = oracle.flashmask(indices.numpy(), is_causal, q_len=q_len, kv_len=kv_len)
        wanted = np.broadcast_to(kept, np.broadcast_shapes(found.shape, kept.shape))
        np.testing.assert_array_equal(np.broadcast_to(found, wanted.shape), wanted)


def test_flashmask_forms() -> None:
    def form(mask: ma.Mask, q_len: int = 4, kv_len: int = 4) -> tuple[int, bool]:
        indices, is_causal = ma.to_flashmask(mask, q_len, kv_len)
        return indices.shape[3], is_causal

    assert form(causal) == (1, True)
    assert form(causal & sliding(2)) == (1, True)
    assert form(causal & (sliding(1) | (ma.q_idx >= 3))) == (2, True)
    assert form(sliding(2)) == (2, False)
    assert form(causal, 4, 5) == (2, False)
    assert form(prefix(2)) == (2, False)
    assert form(sliding(1) | ((ma.q_idx + 2 == ma.kv_idx) & (ma.q_idx == 0))) == (4, False)


def test_flashmask_by_hand() -> None:
    indices, is_causal = ma.to_flashmask(causal & document(torch.tensor([0, 0, 1])), 3)
    assert is_causal and indices.tolist() == [[[[2], [2], [3]]]]
    indices, is_causal = ma.to_flashmask(document(torch.tensor([0, 1, 1])), 3)
    assert not is_causal and indices.tolist() == [[[[1, 0], [3, 1], [3, 1]]]]


def test_three_ranges_are_refused() -> None:
    mask = (ma.q_idx % 2 == 1) & (ma.kv_idx == 2) | ma.everything & (ma.kv_idx != 2)
    with pytest.raises(ma.MaskValueError, match=r"key 2 .* 3 separate ranges"):
        ma.to_flashmask(mask, 6)
    assert ma.to_flashmask(mask, 4)[0].shape[3] == 4


@pytest.mark.parametrize("name", CATALOGUE)
def test_attention_slices_come_back(name: str) -> None:
    case = CATALOGUE[name]
    for q_len, kv_len in LENGTHS:
        whole = case.dense(q_len, kv_len)
        kept = np.broadcast_to(whole[:1, :1], (1, 1, q_len, kv_len))
        # A batch or heads of several: the first of each, written out.
        alone = whole.shape[:2] == (1, 1)
        mask = case.mask if alone else ma.dense(torch.from_numpy(kept.copy()))
        queries, keys, kinds = ma.to_attention_slices(mask, q_len, kv_len)
        assert queries.shape == keys.shape == (len(kinds), 2)
        found = ma.attention_slices(queries, keys, kinds, q_len=q_len)
        assert_same_mask(found, kept, q_len, kv_len)
        at = {"q_len": q_len, "kv_len": kv_len}
        lists = [list(map(tuple, t.tolist())) for t in (queries, keys)]
        apart = [
            oracle.attention_slices([a], [b], [c], **at)
            for a, b, c in zip(*lists, kinds.tolist(), strict=True)
        ]
        # Disjoint, as MagiAttention wants them: no pair is in two slices.
        assert (sum(part.astype(int) for part in apart) <= 1).all() if apart else not kept.any()


def test_attention_slices_by_hand() -> None:
    def listed(mask: ma.Mask, q_len: int, kv_len: int | None = None) -> list[list[object]]:
        return [t.tolist() for t in ma.to_attention_slices(mask, q_len, kv_len)]

    assert listed(causal, 9) == [[[0, 9]], [[0, 9]], [1]]
    assert listed(~causal, 3, 5) == [[[0, 3]], [[1, 5]], [2]]
    assert listed(prefix(3), 4) == [[[0, 4]], [[0, 3]], [0]]
    packed = causal & document(IDS)
    assert listed(packed, 20) == [[[0, 5], [5, 14], [14, 20]]] * 2 + [[1, 1, 1]]
    assert listed(causal & sliding(3), 6) == [[[0, 3], [3, 6]], [[0, 3], [1, 6]], [1, 3]]


def one_query_at_a_time(kept: np.ndarray) -> list[list[int]]:
    """Slices as they grow: while a slice can take an interval of the next query, it does."""
    moves = {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
    done: list[list[int]] = []
    growing: list[tuple[list[int], tuple[int, int], int | None]] = []
    for row, keys in enumerate(np.pad(kept, ((0, 1), (1, 1))).astype(int)):
        edges = np.flatnonzero(np.diff(keys)).tolist()
        left = list(zip(edges[::2], edges[1::2], strict=True))
        grown = []
        for part, (start, end), kind in growing:
            found = next(
                (
                    (to, way)
                    for (a, b), way in moves.items()
                    if kind in (None, way) and (to := (start + a, end + b)) in left
                ),
                None,
            )
            if found is None:
                done.append([*part, row, end, kind or 0])
            else:
                left.remove(found[0])
                grown.append((part, *found))
        growing = grown + [([row, start], (start, end), None) for start, end in left]
    return sorted(done)


@settings(max_examples=40)
@given(masks(depth=2), st.sampled_from([(37, 37), (20, 37), (37, 11)]))
def test_attention_slices_grow_by_a_query(case: Case, lengths: tuple[int, int]) -> None:
    kept = case.mask.to_dense(*lengths, batch=BATCH, heads=HEADS)
    try:
        queries, keys, kinds = ma.to_attention_slices(case.mask, *lengths)
    except ma.MaskValueError:
        assert kept.shape[:2] != (1, 1)
        return
    (first, end), (start, past) = queries.T, keys.T
    found = torch.stack([first, start, end, past, kinds], dim=1).tolist()
    assert found == one_query_at_a_time(kept[0, 0].numpy())


def test_a_million_tokens() -> None:
    """No element is looked at: a trillion of them would take hours."""
    tokens, length = 1 << 20, 4096
    starts = torch.arange(0, tokens, length, dtype=torch.int32)
    mask = causal & document.from_lengths([length] * (tokens // length))
    queries, keys, kinds = ma.to_attention_slices(mask, tokens)
    assert torch.equal(queries, torch.stack([starts, starts + length], dim=1))
    assert torch.equal(keys, queries) and kinds.unique().tolist() == [1]
    indices, is_causal = ma.to_flashmask(mask, tokens)
    assert is_causal and torch.equal(
        indices[0, 0, :, 0], (starts + length).repeat_interleave(length)
    )


def test_intervals_too_many_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MOST_FOUND", 99)
    with pytest.raises(ma.MaskValueError, match="more than 99 intervals of keys"):
        ma.to_attention_slices((ma.q_idx * ma.kv_idx) % 2 == 0, 20)


def test_attention_slices_of_a_batch_are_refused() -> None:
    with pytest.raises(ma.MaskValueError, match="2 batch entries and 1 heads"):
        ma.to_attention_slices(prefix(torch.tensor([1, 2])), 4)
    scattered = document(torch.arange(1 << 18).repeat(2, 1) % 9)
    with pytest.raises(ma.MaskValueError, match="2 batch entries and 1 heads"):
        ma.to_attention_slices(scattered, 1 << 18)


def test_what_is_no_mask_is_not_written() -> None:
    score = causal + ma.alibi([0.5])
    with pytest.raises(ma.MaskTypeError, match=r"to_flashmask writes masks, .*score\.mask"):
        ma.to_flashmask(score, 4)
    with pytest.raises(ma.MaskTypeError, match="_slices writes masks, got 3 of type int"):
        ma.to_attention_slices(3, 4)


@pytest.mark.parametrize("counts", [None, [3]])
@pytest.mark.parametrize("index", ["batch", "head"])
def test_masks_that_compute_with_what_a_format_holds_once_are_refused(
    index: str, counts: list[int] | None
) -> None:
    """Also where a table of one entry serves any number of batch entries, or heads."""
    at = getattr(ma, index)
    width = 5 if counts is None else ma.table(torch.tensor(counts))[at]
    mask = causal & (ma.q_idx - ma.kv_idx < width * (at + 1))
    text = rf"one mask for (the whole batch|all heads), and .* with a number in place of `{index}`"
    writers = [
        lambda: ma.to_attention_slices(mask, 8),
        lambda: mask.to_flashinfer(8, block=4),
        lambda: mask.to_vllm(8),
        lambda: mask.to_flashinfer(8, form="variable" if index == "batch" else "bits"),
    ]
    for write in writers:
        with pytest.raises(ma.MaskValueError, match=text):
            write()
