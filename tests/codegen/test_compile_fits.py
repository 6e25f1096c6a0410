"""Tiles fit the shared memory and the registers of GPUs that are not here.

A sample of what `benchmarks/compile_matrix.py --catalogue` compiles: what spills most.
"""

import os

import pytest
import torch

from maskalg import block_table, causal, dilated, head, kv_idx, q_idx, table, where

pytest.importorskip("triton", reason="needs Triton")
import triton

from maskalg.backends.triton import offline
from maskalg.backends.triton.launching.fitting import MOST_SPILLED
from maskalg.backends.triton.offline import kernels_offline
from maskalg.testing.catalogue import BIASES, CATALOGUE
from maskalg.tiles.decode import decode_tiles_for
from maskalg.values.algebra import everything
from tests.codegen.test_compile import ELEMENTS

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}
CELLS = [
    ("sm_80", "keys", 64, "bf16", "causal"),
    ("sm_80", "keys", 128, "bf16", "causal documents"),
    ("sm_89", "keys", 128, "bf16", "causal documents"),
    ("sm_120", "keys", 128, "bf16", "causal documents"),
    ("sm_86", "keys", 256, "bf16", "causal"),
    ("sm_89", "queries", 128, "bf16", "causal documents"),
    ("sm_86", "forward", 128, "bf16", "causal sliding"),
    ("sm_80", "forward", 256, "bf16", "causal documents"),
    ("sm_89", "decode, 16 rows", 64, "bf16", "causal documents"),
    ("sm_86", "decode, 16 rows", 128, "bf16", "causal documents"),
    ("sm_89", "decode, 32 rows", 128, "bf16", "causal documents"),
    ("sm_120", "decode, 32 rows", 256, "bf16", "causal"),
    ("sm_80", "queries", 256, "fp32", "causal documents"),
    ("sm_90", "keys", 256, "fp32", "causal documents"),
    ("sm_89", "forward", 256, "fp32", "causal documents"),
    ("sm_86", "decode, 16 rows", 256, "fp32", "causal documents"),
    ("sm_80", "entries of 0", 256, "fp32", "KERPLE, power"),
    ("sm_89", "entries of 0", 160, "fp32", "T5 decoder"),
]


def named(name):
    """A mask or a bias of the catalogue."""
    if name in CATALOGUE:
        return CATALOGUE[name].mask
    return everything + BIASES[name].build(*BIASES[name].tensors())


@pytest.mark.parametrize("target, kernel, dim, element, name", CELLS)
def test_the_first_tile_fits(target, kernel, dim, element, name, monkeypatch):
    compile_kernel, made = offline.compile_kernel, []
    monkeypatch.setattr(
        offline, "compile_kernel", lambda *a, **k: made.append(compile_kernel(*a, **k)) or made[-1]
    )
    report = kernels_offline(named(name), target, dim, DTYPES[element])[kernel]()
    print(f"{report.tier}: {report.stack} bytes spilled, {report.shared} bytes shared")
    assert report.shared <= report.shared_limit and report.stack <= MOST_SPILLED
    assert len(made) == 1, "the table's first tile did not fit"


def test_a_tile_that_spills_gives_way():
    report = kernels_offline(named("FIRE"), "sm_100", 256, DTYPES["bf16"])["keys"]()
    # With Triton 3.9 a tile before it, 32 x 64, spills 240 bytes and serves.
    first = triton.__version__.startswith(("3.6.", "3.7."))
    assert report.tier.startswith(f"plain Triton, 32 x {32 if first else ''}")
    assert report.stack <= MOST_SPILLED


@pytest.mark.parametrize("target, dim", [("sm_80", 256), ("sm_86", 256), ("sm_90", 192)])
def test_the_tile_of_wide_float32_gradients_that_spills_gives_way(target, dim):
    """With two loops it spills 384 bytes and more, as does one of four warps."""
    report = kernels_offline(named("documents or a window"), target, dim, DTYPES["fp32"])["keys"]()
    print(f"{report.tier}: {report.stack} bytes spilled, {report.shared} bytes shared")
    assert report.shared <= report.shared_limit and report.stack <= MOST_SPILLED


def test_a_tile_of_hopper_that_spills_gives_way():
    """The heaviest mask of the catalogue: with tiles of 64 queries it spills 384 bytes or more."""
    mask = CATALOGUE["Transfusion in documents"].mask
    report = kernels_offline(mask, "sm_90", 128, DTYPES["bf16"])["keys"]()
    assert report.tier == "Gluon, blocks of 32" and report.stack <= MOST_SPILLED


# The first two tiles of the table spill 300 to 900 bytes.
IDS = table(torch.arange(4)[:, None] + torch.arange(809) // 30, "ids")
LONG = [
    (
        ("sm_90", "queries", 256, "fp32", "16 x 32, 8 warps"),
        where(head < 2, dilated(3), IDS[head, kv_idx] == IDS[head, q_idx]) | causal,
    ),
    (
        ("sm_100", "queries", 96, "bf16", "64 x 32, 8 warps"),
        (kv_idx // 28 == q_idx // 14)
        & causal.shift(q=2)
        & block_table(torch.ones(1, 1, dtype=torch.bool), 50)
        & block_table(torch.ones(2, 4, 1, 1, dtype=torch.bool), 64),
    ),
]


@pytest.mark.parametrize("cell, expression", LONG)
def test_long_formulas_have_tiles_that_fit(cell, expression):
    target, kernel, dim, element, tile = cell
    report = kernels_offline(expression, target, dim, DTYPES[element])[kernel]()
    print(f"{report.tier}: {report.stack} bytes spilled, {report.shared} bytes shared")
    assert report.shared <= report.shared_limit and report.stack <= MOST_SPILLED
    assert report.tier.startswith(f"plain Triton, {tile}")


@pytest.mark.parametrize("target", ["sm_86", "sm_89", "sm_120"])
def test_no_tile_of_a_warpgroup_where_there_is_none(target):
    tiles = decode_tiles_for(target, 128, 2, "dense", 64, described=True, crowded=False)
    assert all(tile.block_q == 32 for tile in tiles)
