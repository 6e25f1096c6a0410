"""Labels of all tiles from summaries, against elements; and the runs that follow from both."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.schedule.rung import layout_of, rung_of
from maskalg.schedule.summaries.labels import summary_labels
from maskalg.schedule.tile_runs import EMPTY, FULL
from maskalg.schedule.tiling import Tiling
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE

RUNGS = {name: rung_of(bound(case.mask).structure) for name, case in CATALOGUE.items()}
NAMES = [name for name, rung in RUNGS.items() if rung.on_host == "summaries"]
CPU = torch.device("cpu")


def labelled(mask, q_len, kv_len, block):
    """The labels, and those of elements."""
    form = bound(mask)
    labels = summary_labels(Tiling(form, Extents(q_len, kv_len, BATCH, HEADS), block))
    wanted = mask.blocks(q_len, kv_len, block=block, batch=BATCH, heads=HEADS).labels
    return labels, wanted.expand_as(labels)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", [(8, 8), (5, 11)])
def test_labels_are_sound(name, block):
    labels, wanted = labelled(CATALOGUE[name].mask, 61, 50, block)
    assert (wanted[labels == EMPTY] == EMPTY).all()
    assert (wanted[labels == FULL] == FULL).all()


EXACT = [
    "dense",
    "causal below a dense mask",
    "block table",
    "block table of numbers",
    "block table per batch and head",
    "causal block table",
    "Longformer",
    "vertical and slash for all heads",
    "FlashMask, causal from a row on",
]


@pytest.mark.parametrize("name", EXACT)
def test_nothing_is_left_open(name):
    labels, wanted = labelled(CATALOGUE[name].mask, 64, 64, (8, 8))
    assert (labels > EMPTY).sum() <= 1.02 * (wanted > EMPTY).sum()


@pytest.mark.parametrize("name", NAMES)
def test_runs_are_sound(name):
    """Of the row schedule: no kept pair lies outside, and FULL runs drop none."""
    mask = CATALOGUE[name].mask
    found = mask.segments(61, 50, block=(8, 8), batch=BATCH, heads=HEADS)
    kept = mask.to_dense(61, 50, batch=BATCH, heads=HEADS)
    batches, heads, rows = found.shape
    for batch in range(batches):
        for head in range(heads):
            own = kept[min(batch, len(kept) - 1), min(head, kept.shape[1] - 1)]
            for row in range(rows):
                queries = own[8 * row : 8 * row + 8].clone()
                for run in found.row(batch, head, row):
                    keys = slice(8 * run.first, 8 * run.end)
                    assert run.label != FULL or queries[:, keys].all()
                    queries[:, keys] = False
                assert not queries.any()


def test_slashes_are_not_gone_through_pair_by_pair():
    """A table read at the distance, over a million tokens: by sums of its entries."""
    length = 1 << 20
    slash = torch.zeros(length, dtype=torch.bool)
    slash[[0, 70000]] = True
    mask = causal & ma.table(slash)[ma.q_idx - ma.kv_idx]
    labels = summary_labels(Tiling(bound(mask), Extents(length, length, 1, 1), (1024, 1024)))
    assert labels.count_nonzero().item() <= 3 * 1024


def test_indices_are_clamped_to_a_table():
    slash = torch.tensor([True, False, False, True])
    distance = ma.minimum(ma.maximum(ma.q_idx - ma.kv_idx, 0), 3)
    labels, wanted = labelled(ma.table(slash)[distance], 64, 64, (8, 8))
    assert torch.equal(labels > EMPTY, wanted > EMPTY)


def test_a_tensor_that_changes_is_labelled_again():
    table = torch.eye(8, dtype=torch.bool)
    mask = ma.block_table(table, 8)
    before = labelled(mask, 64, 64, (8, 8))[0]
    table[0, 7] = True
    after = labelled(mask, 64, 64, (8, 8))[0]
    assert before[0, 0, 0, 7] == EMPTY and after[0, 0, 0, 7] == FULL


def test_no_keys():
    for mask in (ma.block_table(torch.eye(4, dtype=torch.bool), 16), ma.dense(torch.eye(16) > 0)):
        q, k = torch.randn(1, 1, 16, 16), torch.randn(1, 1, 0, 16)
        assert not ma.attention(q, k, k, mask).any()
        assert not len(mask.segments(16, 0, block=16).first)
        assert mask.cost(16, 0).kept == 0


def test_ranges_of_an_index_are_not_taken_as_met():
    """A tile may see more indices than its pairs read: blocks are evaluated then."""
    flag, step = torch.zeros(8, dtype=torch.bool), torch.tensor([0, 5])
    flag[3] = True
    distance = ma.maximum(ma.q_idx - ma.table(step)[ma.kv_idx], 0)
    labels = ma.table(flag)[distance].blocks(8, 2, block=(1, 2)).labels
    assert labels.flatten().tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_more_batch_entries_than_tiles_may_be():
    table = torch.ones(1, dtype=torch.bool).expand((1 << 22) + 1, 1, 1)
    form = bound(ma.table(table)[ma.batch, ma.q_idx // 16, ma.kv_idx // 16])
    assert layout_of(form, Extents(16, 16, len(table), 1), "queries").grain_bits == 6
