"""Tiles of few queries: which keys in pages take, and how many programs share a multiprocessor."""

import pytest

from maskalg.tiles.decode import decode_programs_for, decode_tiles_for
from maskalg.tiles.shapes import Tile


def tiles(architecture, *, dim=128, crowded=False, paged):
    at = (architecture, dim, 2, "dense", 4)
    return decode_tiles_for(*at, described=False, crowded=crowded, paged=paged)


def test_two_programs_read_pages_in_turn():
    found = tiles("sm_90", paged=True)
    assert found[0] == Tile(16, 64, 4, 3)
    assert found[1:] == tiles("sm_90", paged=False)
    assert decode_programs_for("sm_90", found[0], paged=True) == 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_90", "gfx942"])
def test_one_program_reads_other_keys(architecture):
    for tile in tiles(architecture, paged=False):
        assert decode_programs_for(architecture, tile, paged=False) == 1


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "gfx942"])
def test_other_machines_have_no_tiles_of_pages(architecture):
    found = tiles(architecture, paged=True)
    assert found == tiles(architecture, paged=False)
    assert decode_programs_for(architecture, found[0], paged=True) == 1


@pytest.mark.parametrize(("dim", "crowded"), [(64, False), (128, True)])
def test_what_was_not_measured_in_pages_is_as_elsewhere(dim, crowded):
    found = tiles("sm_90", dim=dim, crowded=crowded, paged=True)
    assert found == tiles("sm_90", dim=dim, crowded=crowded, paged=False)
    assert decode_programs_for("sm_90", found[0], paged=True) == 1 + (
        found[0] == Tile(16, 64, 4, 3)
    )
