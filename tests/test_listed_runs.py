"""Runs as a list, for masks whose closed forms only enclose them."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.extents import Extents
from maskalg.normalform import bound
from maskalg.schedule.listed_runs import GRAIN, listed, listed_runs

MASKS = {
    "image": ma.neighborhood((19, 37), 5),
    "dilated": ma.neighborhood((16, 40), 5, dilation=2),
    "causal": ma.neighborhood((16, 40), 5, causal=(True, False)),
    "video": ma.neighborhood((5, 12, 16), (3, 3, 5)),
}


@pytest.mark.parametrize("of", ["queries", "keys"])
@pytest.mark.parametrize("name", MASKS)
def test_what_is_kept_is_listed(name, of):
    mask, length = MASKS[name], 640
    form = bound(mask)
    assert listed(form.structure)
    runs = listed_runs(form, Extents(length, length, 1, 1), of, torch.device("cpu"))
    dense = mask.to_dense(length)[0, 0]
    dense = dense if of == "queries" else dense.T
    tiles = dense.view(length // GRAIN, GRAIN, length // GRAIN, GRAIN).any(3).any(1)
    found = torch.zeros_like(tiles)
    for row in range(len(tiles)):
        for i in range(int(runs.row_start[row]), int(runs.row_start[row + 1])):
            found[row, runs.first[i] : runs.end[i]] = True
    assert torch.equal(found, tiles)


def test_numbers_are_looked_up_and_not_computed_again():
    extents, device = Extents(640, 640, 1, 1), torch.device("cpu")
    first = listed_runs(bound(ma.neighborhood((16, 40), 5)), extents, "queries", device)
    again = listed_runs(bound(ma.neighborhood((16, 40), 5)), extents, "queries", device)
    other = listed_runs(bound(ma.neighborhood((16, 40), 7)), extents, "queries", device)
    assert again is first and len(other.first) and not torch.equal(other.end, first.end)


def test_a_list_costs_what_is_kept():
    """A window of 13 x 13 pixels of a row of tiles spans 13 image rows, most of which is empty."""
    size = 256
    form = bound(ma.neighborhood((size, size), 13))
    extents = Extents(size * size, size * size, 1, 1)
    runs = listed_runs(form, extents, "queries", torch.device("cpu"))
    visited = int((runs.end - runs.first).sum())
    kept = (ma.neighborhood((size, size), 13)).segments(size * size, block=GRAIN)
    assert visited == sum(kept.counts()[1:])
    assert visited < size * size // GRAIN * 13 * 3


def test_other_masks_compute_their_runs():
    ids = torch.zeros(64, dtype=torch.int64)
    for mask in (causal, ma.neighborhood((8, 8), 3) & ma.document(ids), causal & ma.dilated(7)):
        assert not listed(bound(mask).structure)


def test_the_hook_reads_the_list():
    text = ma.render(ma.neighborhood((8, 8), 3))
    assert "run_of_list(j, q0, q1, T[0], T[1], T[2], kv_len, BLOCK)" in text
