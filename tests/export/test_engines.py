"""Masks as cuDNN, FlashInfer and vLLM take them, read back by our own readers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import MaskValueError, causal, document, prefix, sliding, spans
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import masks

SIZES = ((20, 20), (17, 20), (20, 12), (1, 4), (4, 1))
BLOCK = (6, 4)
Reader = Callable[[ma.Mask, int, int], torch.Tensor]


def by_cudnn(mask: ma.Mask, q_len: int, kv_len: int) -> torch.Tensor:
    found = mask.to_cudnn(q_len, kv_len, batch=BATCH, heads=HEADS)
    points = found.mask_func
    assert points.dtype == torch.int32 and points.is_contiguous()
    assert points.shape[1] % 2 == 1 and points.shape[2] == BATCH * q_len
    assert points.shape[0] in (1, HEADS)
    assert bool((points.diff(dim=1) >= 0).all()), "endpoints decrease"
    return found.to_dense()


def by_blocks(mask: ma.Mask, q_len: int, kv_len: int) -> torch.Tensor:
    found = mask.to_flashinfer(q_len, -(-kv_len // 4) * 4, block=BLOCK)
    assert found.indptr.dtype == found.indices.dtype == torch.int32
    assert len(found.indptr) - 1 == -(-q_len // BLOCK[0]) and found.N % found.C == 0
    if found.mask is not None:
        assert found.mask.shape == (len(found.indices), *BLOCK)
        cells = found.mask.any(dim=(1, 2))
        assert bool(cells.all()), "a block that keeps nothing is listed"
    return found.to_dense()[..., :kv_len]


def by_variable(mask: ma.Mask, q_len: int, kv_len: int) -> torch.Tensor:
    found = mask.to_flashinfer(q_len, kv_len, form="variable", heads=HEADS)
    assert {len(field) for field in found} == {HEADS}, "it takes a map for each head of the keys"
    assert found.block_row_sz.sum(1).unique().tolist() == [q_len]
    assert found.block_col_sz.sum(1).unique().tolist() == [kv_len]
    return found.to_dense()


def by_bits(mask: ma.Mask, q_len: int, kv_len: int) -> torch.Tensor:
    found = mask.to_flashinfer(q_len, kv_len, form="bits", batch=BATCH)
    assert found.packed_custom_mask.shape == (BATCH * -(-q_len * kv_len // 8),)
    return found.to_dense(q_len, kv_len)


READERS = {"cudnn": by_cudnn, "blocks": by_blocks, "variable": by_variable, "bits": by_bits}
TOLD_APART = {"cudnn": (True, True), "blocks": (False, False), "variable": (False, True)}
TOLD_APART["bits"] = (True, False)


def check(reader: str, mask: ma.Mask, kept: np.ndarray, q_len: int, kv_len: int) -> None:
    """Read back what is written, or see it refused for the batch or the heads alone."""
    by_batch, by_head = TOLD_APART[reader]
    apart = mask.blocks(q_len, kv_len, batch=BATCH, heads=HEADS).labels.shape[:2]
    try:
        found = READERS[reader](mask, q_len, kv_len)
    except MaskValueError as refusal:
        assert (apart[0] > 1 and not by_batch) or (apart[1] > 1 and not by_head), refusal
        return
    shape = (BATCH, HEADS, q_len, kv_len)
    assert torch.equal(found.expand(shape), torch.from_numpy(np.broadcast_to(kept, shape).copy()))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_catalogue_comes_back(name: str, reader: str) -> None:
    case = CATALOGUE[name]
    for q_len, kv_len in SIZES:
        if reader == "blocks":
            kv_len = -(-kv_len // 4) * 4
        check(reader, case.mask, case.dense(q_len, kv_len), q_len, kv_len)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, deadline=None)
@given(masks(depth=2), st.sampled_from(SIZES))
def test_random_compositions_come_back(reader: str, case: Case, sizes: tuple[int, int]) -> None:
    q_len, kv_len = sizes
    dense = case.mask.to_dense(q_len, kv_len, batch=BATCH, heads=HEADS).numpy()
    check(reader, case.mask, dense, q_len, kv_len)


def test_cudnn_by_hand() -> None:
    mask = causal & document([0, 0, 1, 1])
    assert mask.to_cudnn(4).mask_func.tolist() == [[[1, 2, 0, 0], [1, 2, 2, 2], [1, 2, 3, 4]]]
    assert causal.to_cudnn(3, batch=2).mask_func.tolist() == [[[1, 2, 3, 1, 2, 3]]]
    windows = causal & sliding(torch.tensor([1, 2]))
    assert windows.to_cudnn(3, heads=2).mask_func.tolist() == [
        [[1, 0, 0], [1, 1, 2], [1, 2, 3]],
        [[1, 2, 0], [1, 2, 1], [1, 2, 3]],
    ]
    none = ma.nothing.to_cudnn(2, 5)
    assert none.mask_func.tolist() == [[[0, 0]]] and not none.to_dense().any()


def test_flashinfer_by_hand() -> None:
    found = (causal & document([0, 0, 1, 1])).to_flashinfer(4, block=2)
    assert found.indptr.tolist() == [0, 1, 2] and found.indices.tolist() == [0, 1]
    assert found.mask is not None and found.mask.tolist() == [[[True, False], [True, True]]] * 2
    whole = document([0, 0, 1, 1]).to_flashinfer(4, block=2)
    assert whole.mask is None and whole._asdict()["indices"].tolist() == [0, 1]
    parts = document([0, 0, 0, 1]).to_flashinfer(4, form="variable")
    assert parts.block_mask_map.tolist() == [[[True, False], [False, True]]]
    assert parts.block_row_sz.tolist() == parts.block_col_sz.tolist() == [[3, 1]]
    of_intervals = document(torch.arange(1 << 20) >> 18).to_flashinfer(1 << 20, form="variable")
    assert of_intervals.block_mask_map.tolist() == [torch.eye(4).bool().tolist()]
    assert of_intervals.block_row_sz.tolist() == [[1 << 18] * 4]  # no element was looked at
    bits = causal.to_flashinfer(3, form="bits").packed_custom_mask
    assert bits.tolist() == [0b11011001, 0b1]  # rows 100, 110, 111, the lowest bit first


CAUSAL = {
    "causal": causal,
    "window and sinks": causal & (sliding(5) | prefix(3)),
    "documents": causal & document(torch.arange(40) // 7),
    "documents in turns": causal & document(torch.arange(40) % 3),
    "nothing": ma.nothing,
}


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("block_size", [1, 4, 16, 64])
def test_vllm_functions_come_back(name: str, block_size: int) -> None:
    mask = CAUSAL[name]
    found = mask.to_vllm(40, block_size=block_size)
    for length in (40, 33):
        assert torch.equal(found.to_dense(length), mask.to_dense(length))
    rows = torch.arange(-(-40 // block_size))
    # Of a last block vLLM asks for all positions, and of blocks that it does not know for others.
    around = torch.arange(-64, 128)
    zero = torch.zeros((), dtype=torch.int64)
    kept = found.logical_mask_mod(zero, zero, around[:, None], around).expand(192, 192)
    assert torch.equal(kept[64:104, 64:104], mask.to_dense(40)[0, 0])
    assert not kept[104:, :104].any() if "documents" in name else not kept.triu(1)[64:].any()
    assert not kept[64:, 104:].any() or "documents" not in name
    hinted = found.hint_fn(rows[:, None], rows[None], block_size)
    labels = mask.segments(40, block=block_size).labels(len(rows))[0, 0]
    assert torch.equal(hinted, labels > 0), "blocks that the proof calls empty are hinted"


@settings(max_examples=40, deadline=None)
@given(masks(depth=2))
def test_random_vllm_functions_come_back(case: Case) -> None:
    mask = case.mask & causal
    dense = mask.to_dense(24, batch=BATCH, heads=HEADS)
    try:
        found = mask.to_vllm(24, block_size=4)
    except MaskValueError as refusal:
        assert "differs between" in str(refusal) or "computes with" in str(refusal)
        return
    assert torch.equal(found.to_dense().expand(dense.shape), dense)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=8))
def test_vllm_ranges_come_back(parts: list[tuple[bool, int]]) -> None:
    ids = [n if seen else -1 for n, (seen, size) in enumerate(parts) for _ in range(size)]
    mask, length = causal | spans(torch.tensor(ids)), len(ids)
    found = mask.to_vllm(length, form="ranges")
    assert torch.equal(found.to_dense(), mask.to_dense(length))
    images = [n for n, (seen, size) in enumerate(parts) if seen and size > 1]
    assert len(found.mm_prefix_range[0]) == len(images), "one range for each image"


def test_vllm_ranges_by_hand() -> None:
    batch = torch.tensor([[-1, 0, 0, -1, 1, 1], [2, 2, 2, -1, -1, 3]])
    found = (causal | spans(batch)).to_vllm(6, form="ranges")
    assert found.mm_prefix_range == {0: [(1, 2), (4, 5)], 1: [(0, 2)]}
    shared = causal | spans(batch[0])
    assert shared.to_vllm(6, form="ranges").mm_prefix_range == {0: [(1, 2), (4, 5)]}
    found = shared.to_vllm(6, form="ranges", batch=2)
    assert found.mm_prefix_range == {key: [(1, 2), (4, 5)] for key in (0, 1)}
    assert torch.equal(found.to_dense(), shared.to_dense(6, batch=2).expand(2, -1, -1, -1))


def test_what_is_refused() -> None:
    heads = causal & sliding(torch.tensor([2, 3]))
    for mistake, text in (
        (lambda: heads.to_flashinfer(8, block=2), "differs between 1 batch entries and 2 heads"),
        (lambda: heads.to_flashinfer(8, form="bits"), "differs between 1 batch entries and 2"),
        (lambda: causal.to_flashinfer(8, 9, block=4), "blocks of 4 do not divide 9 keys"),
        (lambda: causal.to_flashinfer(8, form="rows"), '"blocks", "variable" or "bits"'),
        (
            lambda: prefix(torch.tensor([1, 2])).to_flashinfer(4, form="variable"),
            "differs between 2 batch entries",
        ),
        (lambda: causal.to_flashinfer(5000, form="variable"), "has 5,000 x 5,000 blocks"),
        (lambda: causal.to_flashinfer(1 << 19, form="bits"), "too many to write out"),
        (
            lambda: causal.to_flashinfer(1 << 17, block=1 << 12),
            "need masks, of a byte for each element",
        ),
        (lambda: sliding(3).to_vllm(8), "Write (mask & causal).to_vllm(8)"),
        (lambda: heads.to_vllm(8), "differs between 1 batch entries and 2 heads"),
        (lambda: causal.to_vllm(8, form="rows"), '"function" or "ranges"'),
        (lambda: causal.to_vllm(8, block_size=0), "to_vllm: block_size must be an integer >= 1"),
        (
            lambda: causal.to_mask_mod(8, form="intervals", most=0),
            "to_mask_mod: most must be an integer >= 1",
        ),
        (
            lambda: causal.to_vllm(8).hint_fn(torch.tensor([0]), torch.tensor([0]), 32),
            "Write mask.to_vllm(length, block_size=32)",
        ),
        (lambda: sliding(3).to_vllm(8, form="ranges"), "query 0 of sliding(3) does not keep"),
        (
            lambda: document([0, 1, 0, 1]).to_vllm(4, form="ranges"),
            "query 0 of document",
        ),
        (
            lambda: document(torch.arange(1 << 18) % 9).to_cudnn(1 << 18),
            "4,194,304 tiles of 128 x 128 elements are too many to look at",
        ),
    ):
        with pytest.raises(MaskValueError) as found:
            mistake()
        assert text in str(found.value), found.value


@pytest.mark.parametrize(
    ("mask", "missing"),
    [
        (document(torch.zeros((1, 4), dtype=torch.int64)) & (2 * ma.batch >= ma.kv_idx), "batch"),
        (sliding(torch.tensor([3])) & (2 * ma.head >= ma.kv_idx), "heads"),
    ],
)
def test_tables_of_one_entry_do_not_tell_how_many_there_are(mask: ma.Mask, missing: str) -> None:
    """They serve any batch and all heads, so arithmetic beside them is not that of entry 0."""
    calls: list[Callable[..., object]] = [mask.to_dense, mask.to_cudnn, mask.blocks, mask.cost]
    for call in [*calls, lambda n: ma.to_flashmask(mask, n)]:
        with pytest.raises(MaskValueError, match=f"no table tells how many: pass {missing}=…"):
            call(4)
    named = {missing: 3}
    wanted = mask.to_dense(4, **named)
    assert wanted.shape[0] * wanted.shape[1] == 3 and not torch.equal(wanted[:1, :1], wanted)
    assert torch.equal(mask.to_cudnn(4, **named).to_dense(), wanted)
    indices, causal_form = ma.to_flashmask(mask, 4, **named)
    assert torch.equal(ma.flashmask(indices, causal=causal_form).to_dense(4), wanted)
