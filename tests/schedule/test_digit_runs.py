"""Runs of tiles by the digits of positions, as kernels look them up."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.schedule import rung
from maskalg.schedule.digits import rung as digits
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tiling import Tiling

MASKS = {
    "image": ma.neighborhood((19, 37), 5),
    "dilated": ma.neighborhood((16, 40), 5, dilation=2),
    "causal": ma.neighborhood((16, 40), 5, causal=(True, False)),
    "video": ma.neighborhood((5, 12, 16), (3, 3, 5)),
    "tiles": ma.sliding_tile((4, 16, 16), (2, 4, 8), (1, 3, 1)),
    "per head": ma.where(ma.head < 1, ma.spatial(4, 160), ma.temporal(4, 160)),
}
CPU = torch.device("cpu")


def labels_of(runs, columns):
    """0, 1 or 2 of each column, from the runs at each column."""
    rows = runs.view(-1, columns, 2)
    found = torch.zeros(rows.shape[:2], dtype=torch.int64)
    for row, entries in enumerate(rows.tolist()):
        at = 0
        while at < columns and entries[at][0] // 2 < columns:
            code, end = entries[at]
            found[row, code // 2 : end] = 2 - code % 2
            at = end
    return found


@pytest.mark.parametrize("of", ["queries", "keys"])
@pytest.mark.parametrize("name", MASKS)
def test_each_tile_is_told(name, of):
    mask, length, grain = MASKS[name], 640, 64
    form = bound(mask)
    assert rung_of(form.structure).in_kernel == "digits"
    heads = 2 if name == "per head" else 1
    found = rung.marked_runs(form, Extents(length, length, 3, heads), of, CPU)
    wanted = mask.blocks(length, block=grain, heads=heads).labels.long()
    wanted = wanted if of == "queries" else wanted.mT
    assert found.shape == (*wanted.shape, 2) and found.dtype == torch.int32
    assert torch.equal(labels_of(found, wanted.shape[-1]), wanted.flatten(0, 2))


def test_long_rows_take_larger_tiles(monkeypatch):
    monkeypatch.setattr(digits, "MOST_BY_DIGITS", 30)
    form, extents = bound(ma.neighborhood((16, 40), 5)), Extents(640, 640, 1, 1)
    assert rung.layout_of(form, extents, "queries").grain_bits == 7


def test_numbers_are_looked_up_and_not_computed_again():
    extents = Extents(640, 640, 1, 1)

    def found(window, of="queries"):
        form = bound(ma.neighborhood((16, 40), window))
        return rung_of(form.structure).marks(Tiling(form, extents, (64, 64), CPU), of)

    first = found(5)
    assert found(5) is first
    assert not torch.equal(found(7), first) and not torch.equal(found((5, 3), "keys"), first)


def test_masks_with_tensors_are_not_told_by_digits():
    ids = torch.zeros(64, dtype=torch.int64)
    for mask in (causal, ma.neighborhood((8, 8), 3) & ma.document(ids), causal & ma.dilated(7)):
        assert rung_of(bound(mask).structure).in_kernel != "digits"


def test_the_hook_looks_them_up():
    assert "run_of_marks(" in ma.render(ma.neighborhood((8, 8), 3))
