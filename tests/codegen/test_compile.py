"""The kernel compiled for GPUs that are not here: NVIDIA sm_80, sm_90, sm_100 and AMD gfx942."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.normalform import bound
from maskalg.tiles import tiles_for

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 65536}
ELEMENTS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
POINTERS = {torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1", torch.float32: "*fp32"}


def compiled(expression, target, dim, dtype):
    from maskalg_kernels.offline import compile_forward

    from maskalg.backends import triton as backend
    from maskalg.codegen.hooks import hooks_of

    form = bound(expression)
    hooks = hooks_of(form.structure, ptx=target.startswith("sm_"))
    numbers = [
        "fp32" if a.axis is None and isinstance(form.values[a.slot], float) else "i32"
        for a in hooks.scalars
    ]
    tables = ["*i32" if a.step else POINTERS[form.values[a.slot].dtype] for a in hooks.tables]
    pattern = backend.pattern_of(form.structure)
    tile = tiles_for(target, dim, dtype.itemsize, pattern)[0]
    constants = {
        **backend.hook_constants(hooks),
        **backend.shape_constants(dim, dim, dtype, wide=False, arch=target),
        **backend.tile_constants(tile),
        "TMA": backend.has_tma(target),
    }
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    return compile_forward(target, constants, options, ELEMENTS[dtype], numbers, tables)


def expressions():
    ids = torch.zeros(64, dtype=torch.int32)
    return {
        "causal": causal,
        "three": causal & sliding(64) & ma.document(ids) + ma.alibi(torch.ones(4)),
        "sinks": causal & (sliding(64) | ma.prefix(4)) + ma.softcap(30.0),
    }


@pytest.mark.parametrize("target", list(SHARED_LIMIT))
@pytest.mark.parametrize("name", list(expressions()))
def test_compiles_everywhere(target, name):
    result = compiled(expressions()[name], target, 128, torch.bfloat16)
    assert result.shared <= SHARED_LIMIT[target]
    print(f"{name} {target}: {result.registers} registers, {result.shared} bytes shared")


@pytest.mark.parametrize(
    "dim, dtype", [(64, torch.float16), (256, torch.bfloat16), (64, torch.float32)], ids=str
)
def test_shapes(dim, dtype):
    result = compiled(causal & sliding(64), "sm_90", dim, dtype)
    assert result.shared <= SHARED_LIMIT["sm_90"]


def test_hopper_uses_its_matrix_units_without_spilling():
    result = compiled(causal & sliding(64), "sm_90", 128, torch.bfloat16)
    assert "wgmma" in result.assembly
    assert result.spills == 0


def test_no_call_is_left():
    result = compiled(expressions()["three"], "sm_90", 64, torch.bfloat16)
    assert "call.uni" not in result.assembly
