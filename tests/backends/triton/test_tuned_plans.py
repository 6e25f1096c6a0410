"""How a tuned tile goes before the tables' in plans; nothing is compiled."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.normal_form import bound
from maskalg.tiles.forward import hopper_tile_for, tiles_for
from maskalg.tiles.shapes import HopperBackwardTile, HopperTile, Tile
from maskalg.tiles.tuned.choices import NOTHING_TUNED, Choice, Choices, Key

pytest.importorskip("triton", reason="needs Triton")

PLAIN, OTHER = Tile(128, 64, 8, 3), HopperTile(2, 64, 3, 168, 240, 24, False, True)
BACKWARD = HopperBackwardTile(128, 2)
STRUCTURE = bound(causal).structure


def tuned(kernel, tile, *, pad=128, biased=False):
    key = Key(kernel, pad, 2, "dense", biased)
    return Choices({key: Choice(tile, "", 1.1, (1.1, 1.1), "2026")})


def forward(choices, dims=(128, 128), *, wide=False, arch="sm_90", structure=STRUCTURE):
    from maskalg.backends.triton.plan import Inputs, Told, structure_plan
    from maskalg.codegen.hooks import Style

    style = Style(wide, ptx=arch.startswith("sm_"))
    plan = structure_plan(
        structure, Told(style), Inputs(*dims, torch.bfloat16, arch, tuned=choices)
    )
    return plan.hopper, plan.candidates


def backward(choices, *, wide=False):
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan
    from maskalg.codegen.hooks import Style

    inputs = Inputs(128, 128, torch.bfloat16, "sm_90", tuned=choices)
    return backward_plan(STRUCTURE, Told(Style(wide, ptx=True)), inputs)


@pytest.fixture(autouse=True)
def gluon(monkeypatch):
    """Plans as with the Triton that the Gluon kernels were tested with."""
    from maskalg.backends.triton import plan

    monkeypatch.setattr(plan, "has_gluon", lambda: True)


TABLE = tiles_for("sm_90", 128, 2, "dense")
HOPPER = hopper_tile_for("sm_90", 128, 2, "dense", biased=False)


def test_without_choices_the_tables_serve():
    assert forward(NOTHING_TUNED) == (HOPPER, TABLE)


def test_a_plain_tile_goes_first_and_the_tables_stay_behind_it():
    assert forward(tuned("forward", PLAIN)) == (None, (PLAIN, *TABLE))


def test_a_warp_specialised_tile_goes_in_place_of_the_tables():
    assert forward(tuned("forward", OTHER)) == (OTHER, TABLE)


def test_other_keys_are_not_touched():
    for choices in (
        tuned("queries", PLAIN),
        tuned("forward", PLAIN, pad=64),
        tuned("forward", PLAIN, biased=True),
    ):
        assert forward(choices) == (HOPPER, TABLE)
    biased = bound(causal + ma.alibi(torch.ones(2))).structure
    assert forward(tuned("forward", PLAIN, biased=True), structure=biased)[1][0] == PLAIN


def test_what_the_warp_specialised_kernel_does_not_serve_keeps_the_tables():
    assert forward(tuned("forward", OTHER), wide=True) == (None, TABLE)
    assert forward(tuned("forward", OTHER), (128, 32)) == (None, TABLE)
    wide_heads = tiles_for("sm_90", 256, 2, "dense")
    table = hopper_tile_for("sm_90", 256, 2, "dense", biased=False)
    # Measured where queries and output share memory, which they cannot here.
    assert forward(tuned("forward", OTHER, pad=256), (256, 128)) == (table, wide_heads)
    assert forward(tuned("forward", OTHER, pad=256), (256, 256)) == (OTHER, wide_heads)


def test_heads_of_a_size_share_its_tiles():
    for dims in ((80, 80), (96, 72), (65, 96)):
        assert forward(tuned("forward", OTHER, pad=96), dims) == (OTHER, TABLE)
        assert forward(tuned("forward", OTHER), dims)[0] != OTHER
    assert forward(tuned("forward", OTHER, pad=192), (192, 128))[0] == OTHER
    assert forward(tuned("forward", OTHER, pad=192), (192, 192))[0] != OTHER


def test_gradients():
    plain = backward(NOTHING_TUNED)
    _, of_queries, tiles = plain.sides["queries"]
    assert tiles == plain.entry_tiles
    found = backward(tuned("keys", BACKWARD))
    assert found.sides["keys"][1:] == (BACKWARD, plain.sides["keys"].tiles)
    assert found.sides["queries"][1:] == (of_queries, tiles)
    assert backward(tuned("keys", BACKWARD), wide=True).sides["keys"].hopper is None
    found = backward(tuned("queries", PLAIN))
    assert found.sides["queries"][1:] == (None, (PLAIN, *tiles))
    # Gradients of tables have a kernel of their own, which was not measured.
    assert found.entry_tiles == plain.entry_tiles


def test_looked_up_once_a_device(monkeypatch):
    from maskalg.backends.triton import tuned as triton_tuned

    asked, choices = [], tuned("forward", PLAIN)
    monkeypatch.setattr(triton_tuned, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(triton_tuned, "choices_on", lambda *of: (asked.append(of), choices)[1])
    triton_tuned.look_again()
    try:
        for _ in range(3):
            assert triton_tuned.machine_of(torch.device("cuda", 0)) == ("sm_90", choices)
        assert [of[:2] for of in asked] == [("NVIDIA H200", "sm_90")]
        triton_tuned.look_again()
        triton_tuned.machine_of(torch.device("cuda", 0))
        assert len(asked) == 2
    finally:
        triton_tuned.look_again()
