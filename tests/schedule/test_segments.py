"""The row schedule: compressed rows that agree with the runs and with every element."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from maskalg import (
    MaskValueError,
    causal,
    dense,
    document,
    everything,
    global_tokens,
    nothing,
    prefix,
    shared_prefix,
    sliding,
)
from maskalg.schedule.block_map import Segments
from maskalg.schedule.summaries import rung
from maskalg.schedule.tile_runs import EMPTY, FULL, PARTIAL, Run
from maskalg.testing import describe, oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes
from maskalg.values.algebra import Mask


def of(mask: Mask, shape: Shape) -> Segments:
    return mask.segments(*shape.lengths, block=shape.block, batch=BATCH, heads=HEADS)


def check(case: Case, shape: Shape) -> None:
    found = of(case.mask, shape)
    dense = case.mask.to_dense(*shape.lengths, batch=BATCH, heads=HEADS).numpy()
    wanted = oracle.labels(dense, *shape.block)
    where = f"{describe(case.mask)}\n{shape}\n{found}"
    assert found.shape == wanted.shape[:3], where
    assert found.row_start[0] == 0 and found.row_start[-1] == len(found.first), where
    assert (found.row_start.diff() >= 0).all(), where
    counted = np.zeros(3, dtype=int)
    for batch, head, row in np.ndindex(*found.shape):
        labels = np.full(wanted.shape[3], EMPTY)
        before = None
        for run in found.row(batch, head, row):
            assert run.label in (PARTIAL, FULL), where
            assert 0 <= run.first < run.end <= wanted.shape[3], where
            if before is not None:
                assert before.end <= run.first, where
                assert before.end < run.first or before.label != run.label, where
            labels[run.first : run.end] = run.label
            before = run
        truth = wanted[batch, head, row]
        assert not ((labels == EMPTY) & (truth != EMPTY)).any(), where
        assert not ((labels == FULL) & (truth != FULL)).any(), where
        counted += np.bincount(labels, minlength=3)
    assert found.counts() == tuple(counted), where


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name: str) -> None:
    for shape in (Shape(37, 37, 8, 5), Shape(40, 23, 7, 16), Shape(1, 33, 8, 8)):
        check(CATALOGUE[name], shape)


@given(masks(depth=2), shapes())
def test_random_compositions(case: Case, shape: Shape) -> None:
    check(case, shape)


def test_written_out() -> None:
    sinks = causal & (sliding(2) | prefix(2))
    found = sinks.segments(8, block=2)
    assert found.row_start.tolist() == [0, 1, 3, 5, 7]
    assert found.first.tolist() == [0, 0, 1, 0, 1, 0, 2]
    assert found.end.tolist() == [1, 1, 2, 1, 3, 1, 4]
    assert found.label.tolist() == [1, 2, 1, 2, 1, 2, 1]
    arrays = (found.row_start, found.first, found.end, found.label)
    assert all(array.dtype == torch.int32 for array in arrays)
    assert found.nbytes == 4 * (5 + 7 + 7 + 7)
    assert str(found) == (
        "Segments(q_len=8, kv_len=8, block=(2, 2), segments=7, empty=7, partial=6, full=3)"
    )


def test_nothing_to_visit_and_all_to_visit() -> None:
    assert nothing.segments(100, block=16).counts() == (49, 0, 0)
    assert nothing.segments(100, block=16).row_start.tolist() == [0] * 8
    assert everything.segments(100, block=16).row(0, 0, 3) == [Run(0, 7, FULL)]
    assert everything.segments(0).row_start.tolist() == [0]
    assert everything.segments(5, 0).counts() == (0, 0, 0)


def test_rows_of_each_batch_entry() -> None:
    found = CATALOGUE["document per batch"].mask.segments(40, block=8)
    assert found.shape[0] == BATCH
    assert found.row(0, 0, 0) != found.row(1, 0, 0)
    assert found.row(1, 5, 0) == found.row(1, 0, 0)


def test_wrong_lengths_and_blocks_are_refused() -> None:
    with pytest.raises(MaskValueError, match="q_len must be an integer >= 0"):
        causal.segments(-1)
    with pytest.raises(MaskValueError, match="block must be"):
        causal.segments(8, block=0)
    with pytest.raises(MaskValueError, match="Pass ids with at least 9"):
        document(torch.zeros(8, dtype=torch.int32)).segments(9)


def test_a_million_tokens_take_little_memory() -> None:
    length = 1 << 20
    ids = torch.arange(512, dtype=torch.int32).repeat_interleave(2048)
    for mask in (causal & sliding(4096), causal & document(ids) & sliding(4096)):
        assert mask.segments(length).nbytes < 1 << 20


@pytest.mark.parametrize("most", [rung._MOST_OPEN, 40], ids=["all", "few"])
@given(masks(depth=2), shapes())
def test_larger_tiles_are_divided_where_they_are_partial(
    most: int, case: Case, shape: Shape
) -> None:
    """As for lengths with too many tiles to label all of them, or all that are partial."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rung, "_ALL_LABELLED", 4)
        patch.setattr(rung, "_SMALLEST_TILE", 1)
        patch.setattr(rung, "_PARTS", 4)
        patch.setattr(rung, "_MOST_OPEN", most)
        patch.setattr(rung, "MOST_TILES", 4)
        check(case, shape)


def test_scattered_global_tokens_are_found_among_more_tiles_than_are_labelled() -> None:
    length = 230_000
    flags = torch.zeros(length, dtype=torch.bool)
    flags[:: length // 4] = True  # four or five tokens, each of which meets all others
    found = (sliding(8) | global_tokens(flags)).segments(length, block=(48, 16))
    empty, partial, _ = found.counts()
    assert partial < 200_000 < empty // 100


def test_dense_masks_with_many_tiles_are_partial_by_large_tiles() -> None:
    kept = torch.rand(2048, 2048, generator=torch.Generator().manual_seed(0)) < 0.5
    kept[:1000, 1000:] = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rung, "_ALL_LABELLED", 64)
        patch.setattr(rung, "_MOST_OPEN", 100)
        exact = dense(kept).segments(2048, block=8)
        patch.setattr(rung, "MOST_TILES", 1000)
        found = dense(kept.clone()).segments(2048, block=8)
        told = (dense(kept.clone()) & sliding(8)).segments(2048, block=8)
    assert exact.counts()[0] == 125 * 131
    assert found.counts() == (96 * 128, 256**2 - 96 * 128, 0)  # of tiles of 256 by 256
    # Intervals alone tell more than such tiles.
    assert told.counts()[1] == 256 + 2 * 255


def test_prefix_trees_of_a_million_tokens_are_told_by_128() -> None:
    lengths = torch.tensor([900, 300, 100, 700]).repeat(530)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)[: 1 << 20].int()
    parents = torch.where(
        torch.arange(len(lengths)) % 4 > 0, torch.arange(len(lengths)) // 4 * 4, -1
    )
    mask = shared_prefix(ids, parents)
    part = slice(500 * 128, 516 * 128)
    found = mask.segments(1 << 20, block=128)
    near = mask.shift(q=part.start, kv=part.start).to_dense(16 * 128)
    wanted = oracle.labels(near.numpy(), 128, 128)[0, 0]
    labels = np.zeros_like(wanted)
    for row in range(16):
        for run in found.row(0, 0, 500 + row):
            assert run.first >= 480 and run.end <= 500 + row + 1  # within the tree of 2000 tokens
            labels[row, max(run.first - 500, 0) : max(run.end - 500, 0)] = run.label
    assert (labels == wanted).all()
