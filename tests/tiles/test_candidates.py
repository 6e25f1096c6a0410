"""Which tiles a search may try, and which a device must never be given."""

from dataclasses import replace
from itertools import product

import pytest

from maskalg.tiles.patterns import PATTERNS
from maskalg.tiles.shapes import HopperBackwardTile, HopperTile, Tile
from maskalg.tiles.tuned.candidates import first_candidates, neighbours, table_tiles
from maskalg.tiles.tuned.choices import KERNELS, Key, legal, text

KEYS = [
    Key(*key) for key in product(KERNELS, (64, 96, 128, 192, 256), (2, 4), PATTERNS, (False, True))
]
ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "gfx942"]
FORWARD, KEYS_128 = Key("forward", 128, 2, "dense", False), Key("keys", 128, 2, "dense", False)
HOPPER = HopperTile(2, 128, 2, 168, 240, 24, True, False)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tables_are_legal_and_among_the_candidates(architecture):
    for key in KEYS:
        tiles = table_tiles(architecture, key)
        assert all(legal(key, tile) for tile in tiles), key
        assert set(tiles) <= set(first_candidates(architecture, key)), key


def test_tiles_that_are_tried_where_those_of_the_tables_spill_are_legal():
    tried = 0
    for key in KEYS:
        for tile in table_tiles("sm_90", key):
            if isinstance(tile, HopperBackwardTile):
                assert all(legal(key, other) for other in tile.in_turn()), (key, tile)
                tried += len(tile.in_turn()) - 1
    assert tried > 10


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_candidates_are_legal_few_and_told_apart(architecture):
    for key in KEYS:
        found = list(first_candidates(architecture, key))
        for tile in found[:3]:
            found += neighbours(architecture, key, tile)
        found = list(dict.fromkeys(found))
        assert all(legal(key, tile) for tile in found)
        assert len({text(tile) for tile in found}) == len(found)
        assert 3 <= len(first_candidates(architecture, key)) <= 24


def test_the_warp_specialised_kernels_are_of_sm_90_and_half_precision():
    for architecture, key in product(ARCHITECTURES, KEYS):
        tiers = {type(tile) for tile in first_candidates(architecture, key)}
        if architecture != "sm_90" or key.element_bytes != 2:
            assert tiers == {Tile}, (architecture, key)
        elif key.size in (64, 96, 128):
            assert tiers == {Tile, HopperTile if key.kernel == "forward" else HopperBackwardTile}


def test_neighbours_differ_in_one_respect():
    near = neighbours("sm_90", FORWARD, Tile(64, 64, 4, 3))
    assert set(near) == {
        Tile(32, 64, 4, 3), Tile(128, 64, 4, 3), Tile(64, 32, 4, 3), Tile(64, 128, 4, 3),
        Tile(64, 64, 8, 3), Tile(64, 64, 4, 2), Tile(64, 64, 4, 4), Tile(64, 64, 4, 3, True),
    }  # fmt: skip
    assert set(neighbours("sm_90", FORWARD, HOPPER)) == {
        replace(HOPPER, block_kv=64),
        replace(HOPPER, stages=3),
        replace(HOPPER, consumer_registers=232, producer_registers=40),
        replace(HOPPER, consumers=3, registers=128, consumer_registers=160, producer_registers=32),
        replace(HOPPER, consumers=1, registers=128, consumer_registers=232, turns=False),
        replace(HOPPER, turns=False),
        replace(HOPPER, persistent=True),
        replace(HOPPER, overlap=True),
        replace(HOPPER, held=False),
    }
    assert set(neighbours("sm_90", KEYS_128, HopperBackwardTile(64, 2))) == {
        HopperBackwardTile(64, 3),
        HopperBackwardTile(128, 2),
        HopperBackwardTile(64, 2, persistent=True),
        HopperBackwardTile(64, 2, consumers=1),
        HopperBackwardTile(64, 2, anew=True),
        HopperBackwardTile(64, 2, divided=True),
    }


def test_float32_tiles_stay_as_small_as_the_tables():
    key = replace(FORWARD, element_bytes=4)
    most = max(tile.block_q * tile.block_kv for tile in table_tiles("sm_90", key))
    for tile in first_candidates("sm_90", key):
        assert tile.block_q * tile.block_kv <= most


@pytest.mark.parametrize(
    "tile",
    [
        replace(HOPPER, consumer_registers=248),  # more than there are: it would wait for ever
        replace(HOPPER, registers=176),  # more than a multiprocessor has
        replace(HOPPER, consumers=3),
        replace(HOPPER, consumers=1),
        replace(HOPPER, producer_registers=20),
        replace(HOPPER, stages=1),
        replace(HOPPER, block_kv=96),
        HopperBackwardTile(64, 2),
        Tile(64, 48, 4, 2),
        Tile(64, 64, 3, 2),
        Tile(64, 64, 4, 0),
    ],
    ids=text,
)
def test_what_the_forward_kernel_cannot_have(tile):
    assert not legal(FORWARD, tile)


def test_what_gradients_cannot_have():
    assert legal(KEYS_128, HopperBackwardTile(64, 2))
    queries = replace(KEYS_128, kernel="queries")
    assert legal(queries, HopperBackwardTile(64, 4, overlap=True))
    in_one_ring = HopperBackwardTile(64, 3, one_ring=True)
    for tile in (in_one_ring, replace(in_one_ring, overlap=True), replace(in_one_ring, stages=2)):
        assert legal(replace(queries, size=256), tile)
    # Its loads of narrower values would never be complete.
    assert not legal(replace(queries, size=192), in_one_ring)
    assert legal(replace(KEYS_128, size=256), HopperBackwardTile(64, 2, divided=True))
    for key, tile in [
        (KEYS_128, HOPPER),
        (KEYS_128, HopperBackwardTile(64, 2, overlap=True)),
        (replace(KEYS_128, kernel="queries"), HopperBackwardTile(64, 2, anew=True)),
        (KEYS_128, HopperBackwardTile(64, 1)),
        (KEYS_128, HopperBackwardTile(64, 2, consumers=3)),
        (replace(KEYS_128, size=256), HopperBackwardTile(64, 2)),
        (KEYS_128, HopperBackwardTile(128, 2, divided=True)),
        (KEYS_128, HopperBackwardTile(64, 2, divided=True, consumers=1)),
        (KEYS_128, HopperBackwardTile(64, 3, one_ring=True)),
        (queries, HopperBackwardTile(64, 2, divided=True)),
        # It would wait for ever.
        (queries, HopperBackwardTile(64, 2, one_ring=True, overlap=True)),
        (replace(KEYS_128, size=32), HopperBackwardTile(64, 2)),
        (replace(KEYS_128, element_bytes=4), HopperBackwardTile(64, 2)),
    ]:
        assert not legal(key, tile)
