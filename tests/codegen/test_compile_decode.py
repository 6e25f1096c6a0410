"""The kernel of few queries, compiled without the GPU."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.normal_form import bound
from maskalg.tiles.decode import decode_tiles_for

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.constants import has_tma
from maskalg.backends.triton.families.decode import DECODE, decode_constants
from maskalg.backends.triton.launching.ahead import compile_kernel
from maskalg.backends.triton.offline import table_dtypes
from maskalg.backends.triton.plan import Inputs, Told, structure_plan
from maskalg.codegen.hooks import Style

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 65536}
EXPRESSIONS = {
    "causal": causal,
    "document": causal & ma.document(torch.zeros(64, dtype=torch.int32)),
    "softcap": causal + ma.softcap(30.0) @ ma.alibi(torch.ones(4)),
}


def compiled(name, target, dim, rows, crowded=False):
    form = bound(EXPRESSIONS[name])
    style = Style(ptx=target.startswith("sm_"))
    plan = structure_plan(form.structure, Told(style), Inputs(dim, dim, torch.bfloat16, target))
    by_descriptor = has_tma(target)
    tiles = decode_tiles_for(
        target, dim, 2, plan.pattern, rows, described=by_descriptor, crowded=crowded
    )
    tables = table_dtypes(plan.hooks, form)
    for tile in tiles:
        constants = decode_constants(plan, ma.softmax, tile, target)
        found = compile_kernel(DECODE, target, constants, torch.bfloat16, tables, tma=by_descriptor)
        if found.shared <= SHARED_LIMIT[target]:
            return found, tile
    raise AssertionError(f"no tile fits {target}")


@pytest.mark.parametrize("target", list(SHARED_LIMIT))
@pytest.mark.parametrize("name", ["causal", "document"])
def test_compiles_everywhere(target, name):
    found, tile = compiled(name, target, 128, 4)
    assert tile.block_q == 16
    copies = {
        "sm_80": "cp.async",
        "sm_90": "cp.async",
        "sm_100": "cp.async",
        "gfx942": "v_mfma",
    }
    assert copies[target] in found.assembly
    assert ("griddepcontrol.launch_dependents" in found.assembly) == (target in ("sm_90", "sm_100"))


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("rows, product", [(4, "mma.sync"), (20, "mma.sync"), (100, "wgmma")])
def test_rows_on_hopper(dim, rows, product):
    found, _ = compiled("causal", "sm_90", dim, rows)
    assert product in found.assembly
    assert found.spills <= (24 if (dim, rows) == (64, 20) else 0)


@pytest.mark.parametrize("dim, spills", [(64, 12), (128, 0)])
def test_crowded_programs_share_a_multiprocessor(dim, spills):
    found, tile = compiled("causal", "sm_90", dim, 4, crowded=True)
    assert tile.block_q == 16 and found.spills <= spills
    assert 3 * found.shared <= SHARED_LIMIT["sm_90"]


def test_biases_do_not_spill():
    assert compiled("softcap", "sm_90", 128, 4)[0].spills == 0
