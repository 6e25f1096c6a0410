"""Masks whose tiles are marked, in Triton's interpreter: results, and what is visited."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.engine.normal_form import bound
from maskalg.schedule import rung
from maskalg.schedule.rung import rung_of
from maskalg.schedule.summaries import labels
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE
from tests.cases.gradients import check_gradients

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

RUNGS = {name: rung_of(bound(case.mask).structure) for name, case in CATALOGUE.items()}
NAMES = [name for name, found in RUNGS.items() if found.on_host == "summaries"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Marks of tiles of 16 positions, where a GPU has them of 64 and more, from some size on."""
    monkeypatch.setattr(rung, "_SMALLEST_BITS", 4)
    monkeypatch.setattr(labels, "_FEWEST_TILES", 0)


def inputs(q_len, kv_len, members=(BATCH, HEADS)):
    torch.manual_seed(0)
    return [torch.randn(*members, length, 16) for length in (q_len, kv_len, kv_len)]


@pytest.mark.parametrize("name", NAMES)
def test_masks(name):
    tensors, mask = inputs(40, 50), CATALOGUE[name].mask
    out, lse = ma.attention(*tensors, mask, return_lse=True, backend="triton")
    wide = [t.double() for t in tensors]
    want, want_lse = ma.attention(*wide, mask, return_lse=True, backend="reference")
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["block table per batch and head", "FlashMask, two ranges", "Transfusion"]
)
def test_gradients(name):
    check_gradients(inputs(40, 33), CATALOGUE[name].mask, most=1e-4)


@pytest.mark.parametrize("block", [16, 24])
def test_nothing_else_is_visited(block):
    """What is not a number reaches whatever it is multiplied with, by 0 too."""
    table = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]])
    query, key, value = inputs(4 * block, 4 * block, (1, 1))
    mask = ma.block_table(table, block)
    tile = 32  # of queries
    for first in range(0, 4 * block, tile):
        rows = slice(first, first + tile)
        needed = torch.zeros(4 * block + 16, dtype=torch.bool)
        for row in range(first // block, min(-(-(first + tile) // block), 4)):
            for column in table[row].nonzero().flatten().tolist():
                low = column * block // 16 * 16
                needed[low : -(-(column + 1) * block // 16) * 16] = True
        poisoned = value.clone()
        poisoned[:, :, ~needed[: 4 * block]] = float("nan")
        out = ma.attention(query, key, poisoned, mask, backend="triton")
        assert not out[:, :, rows].isnan().any()


def test_masks_of_many_numbers():
    """Marks take three numbers forward and six backward; without room for them there are none."""
    table = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    mask = ma.everything
    for side in (16, 17, 18, 19):
        mask &= ma.block_table(table, side)
    check_gradients(inputs(20, 20, (1, 1)), mask, most=1e-4)


def test_entries_that_change_are_seen():
    table = torch.eye(4, dtype=torch.bool)
    mask, tensors = ma.block_table(table, 16), inputs(64, 64, (1, 1))
    for _ in range(3):
        found = ma.attention(*tensors, mask, backend="triton")
        wanted = ma.attention(*tensors, mask, backend="reference")
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        table[0] = ~table[0]
