"""Which of several tiles serves."""

import pytest
import torch

import maskalg as ma
from maskalg.attention import checked_call

pytest.importorskip("triton", reason="launches of Triton's kernels")

from maskalg.backends.triton.launching.fitting import (
    MOST_SPILLED,
    first_that_fits,
    that_fits,
    why_not,
)
from maskalg.backends.triton.launching.launch import Launch
from maskalg.backends.triton.launching.spec import KernelSpec, Sizes
from maskalg.tiles.shapes import Tile, in_turn

LARGE = {"first": None, "second": MOST_SPILLED + 9, "third": MOST_SPILLED + 4}


def test_the_first_that_spills_little():
    asked = []
    spills = {"first": None, "second": MOST_SPILLED + 1, "third": MOST_SPILLED, "fourth": 0}
    found = first_that_fits(spills, lambda name: asked.append(name) or spills[name])
    assert found == "third" and asked == ["first", "second", "third"]


def test_the_one_that_spills_least_where_all_spill():
    assert first_that_fits(LARGE, LARGE.get) == "third"


def test_the_last_where_there_is_room_for_none():
    assert first_that_fits("ab", lambda name: None) == "b"
    assert first_that_fits("", lambda name: 0) is None


class Kernel:
    """A kernel whose compiled form says what it spills, or that there is no room."""

    def __init__(self, n_spills):
        self.n_spills, self.compilations = n_spills, 0
        self.arg_names, self.do_not_specialize = ["length"], []

    def warmup(self, *arguments, grid, **constants):
        self.compilations += 1
        return self

    @property
    def run(self):
        from triton.runtime.errors import OutOfResources

        if self.n_spills is None:
            raise OutOfResources(300_000, 232_448, "shared memory")


def launch_of(kernel, tile=None):
    tensor = torch.zeros(1, 1, 1, 16)
    spec = KernelSpec("")
    vars(spec)["kernel"] = kernel  # in place of what would be imported
    sizes = Sizes(1, {"length": 1})
    call = checked_call(tensor, tensor, tensor, ma.causal)
    return Launch(spec, kernel, call, {}, lambda call: sizes, dict, tile=tile)


@pytest.mark.parametrize("words, found", [(None, None), (0, 0), (70, 280)])
def test_what_a_launch_spills_is_asked_once(words, found):
    kernel = Kernel(words)
    launch = launch_of(kernel)
    assert [launch.spilled() for _ in range(2)] == [found, found]
    assert kernel.compilations == 1


def test_a_tile_that_spills_gives_way_and_is_told(monkeypatch):
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    large, small = Tile(64, 64, 4, 2), Tile(32, 32, 4, 2)
    launches = [launch_of(Kernel(words), tile) for tile, words in ((large, 100), (small, 0))]
    assert that_fits("gives way", launches).tile == small
    assert why_not("gives way", large) == "it spills 400 bytes a thread"
    assert why_not("gives way", small) is None


def test_where_a_table_spills_more_warps_come_first_and_then_the_smallest_tiles(monkeypatch):
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    table = (Tile(64, 64, 4, 2), Tile(32, 64, 4, 2, one_loop=True))
    tiles = in_turn(table)
    assert tiles[:2] == table and tiles[2] == Tile(32, 64, 8, 2, one_loop=True)
    assert in_turn(tiles) == tiles and in_turn(()) == ()
    for serving, tile in enumerate(tiles):
        kernels = [Kernel(0 if number == serving else 100) for number in range(len(tiles))]
        found = that_fits(f"of {serving}", map(launch_of, kernels, tiles))
        assert found.tile == tile
        assert not any(kernel.compilations for kernel in kernels[serving + 1 :])
