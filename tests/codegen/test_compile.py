"""The kernel compiled for GPUs that are not here: NVIDIA sm_80, sm_90, sm_100 and AMD gfx942."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine.normal_form import bound
from maskalg.tiles.backward import backward_tiles_for
from tests.cases.many_numbers import windows

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 65536}
ELEMENTS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def compiled(expression, target, dim, dtype, kernel="forward", weight=ma.softmax):
    """A kernel as the backend would launch it for `expression`, at the first tile of its table."""
    from maskalg.backends.triton.constants import (
        has_tma,
        shape_constants,
        tile_constants,
        weight_constants,
    )
    from maskalg.backends.triton.families import backward, entries, forward
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.offline import table_dtypes
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan, structure_plan
    from maskalg.codegen.entries import entries_of
    from maskalg.codegen.hooks import Style
    from maskalg.tiles.patterns import pattern_of

    form = bound(weight.applied(expression))
    structure, style, held = form.structure, Style(ptx=target.startswith("sm_")), {}
    pattern, weighted = pattern_of(structure), weight.formula is not None
    constants = shape_constants(dim, dim, dtype, wide=False, arch=target)
    constants |= weight_constants(weight)
    inputs = Inputs(dim, dim, dtype, target, weighted)
    if kernel == "forward":
        plan = structure_plan(structure, Told(style), inputs)
        (tile, *_), spec, hooks = plan.candidates, forward.FORWARD, plan.hooks
        constants = forward.forward_constants(plan, weight, tile)
    elif kernel == "backward_entries":
        slots = tuple(slot.index for slot, t in form.tensors() if t.is_floating_point())
        entry = entries_of(structure, slots, style)[0]
        tile, *_ = backward_tiles_for(target, dim, dtype.itemsize, pattern, of="entries")
        spec, hooks, held = entries.ENTRIES, entry.hooks, entries.held_by(entry.mode)
        constants |= entries.entry_constants(entry, entry.mode) | tile_constants(tile)
    else:
        of = kernel.removeprefix("backward_")
        plan = backward_plan(structure, Told(style), inputs)
        tile, *_ = backward_tiles_for(target, dim, dtype.itemsize, pattern, of=of)
        spec, hooks = backward.gradient_spec(of, tile), plan.hooks
        constants |= backward.gradient_constants(plan, of, tile)
    tables, tma = table_dtypes(hooks, form), has_tma(target)
    return compile_kernel(spec, target, constants, dtype, tables, tma=tma, held=held)


def expressions():
    ids = torch.zeros(64, dtype=torch.int32)
    return {
        "causal": causal,
        "three": causal & sliding(64) & ma.document(ids) + ma.alibi(torch.ones(4)),
        "sinks": causal & (sliding(64) | ma.prefix(4)) + ma.softcap(30.0),
        "many numbers": windows(13) & ma.document(ids) + ma.alibi(torch.ones(4)),
    }


# Bytes of registers a thread may spill. dK and dV hold two tiles of sums: measured on an H200, the
# tiles that spill a little are faster than smaller ones that spill nothing.
SPILLED = {"forward": 0, "backward_queries": 0, "backward_keys": 320}
KERNELS = ["forward", "backward_queries", "backward_keys", "backward_entries"]


@pytest.mark.parametrize("target", list(SHARED_LIMIT))
@pytest.mark.parametrize("kernel", KERNELS)
def test_compiles_everywhere(target, kernel):
    result = compiled(expressions()["three"], target, 128, torch.bfloat16, kernel)
    assert result.shared <= SHARED_LIMIT[target]
    print(f"{kernel} {target}: {result.registers} registers, {result.shared} bytes shared")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_many_numbers(target, kernel):
    result = compiled(expressions()["many numbers"], target, 64, torch.bfloat16, kernel)
    assert result.shared <= SHARED_LIMIT[target]


@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx90a"])
def test_masks_on_canvases(target):
    video = ma.neighborhood((4, 8, 8), 3, (1, 2, 2), (True, False, False))
    result = compiled(video, target, 128, torch.bfloat16)
    assert result.shared <= SHARED_LIMIT.get(target, SHARED_LIMIT["gfx942"])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32], ids=str)
def test_unsigned_entries(dtype):
    from maskalg.backends.triton.offline import compile_offline

    entries = torch.zeros(64).to(dtype)
    mask = ma.table(entries)[ma.q_idx] >= ma.table(entries.clone(), "other")[ma.kv_idx]
    for kernel in ("forward", "backward_keys"):
        compiled(causal & mask, "sm_90", 64, torch.bfloat16, kernel)
    [report] = compile_offline(causal & mask, "sm_90", 64, torch.bfloat16, backward=False)
    assert report.tier.startswith("Gluon")


IDS = torch.zeros(64, dtype=torch.int32)
WITH_DOCUMENTS = {
    "spans": causal | ma.spans(IDS),
    "or": causal | ma.document(IDS),
    "and or": causal & (sliding(64) | ma.document(IDS)),
    "shared": ma.shared_prefix(IDS, torch.full((64,), -1, dtype=torch.int32)),
    "where": ma.where(ma.head % 2 == 0, ma.document(IDS), causal),
}


# Kernels whose matrix products are read in the branch of documents that lie apart alone.
@pytest.mark.parametrize("kernel, dim", [("forward", 256), ("backward_keys", 32)])
@pytest.mark.parametrize("name", list(WITH_DOCUMENTS))
def test_documents_inside_of_other_masks(name, kernel, dim):
    result = compiled(WITH_DOCUMENTS[name], "sm_90", dim, torch.bfloat16, kernel)
    assert "wgmma" in result.assembly


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", ["causal", "three", "sinks"])
@pytest.mark.parametrize("kernel", KERNELS[:3])
def test_spills_on_hopper(kernel, name, dim):
    result = compiled(expressions()[name], "sm_90", dim, torch.bfloat16, kernel)
    print(f"{kernel} {name} {dim}: {result.registers} registers, {result.shared} bytes shared")
    assert result.spills <= SPILLED[kernel]
    assert "wgmma" in result.assembly


@pytest.mark.parametrize("weight", [ma.sigmoid(-1.0), ma.relu_squared], ids=str)
@pytest.mark.parametrize("kernel", KERNELS[:3])
def test_weights(kernel, weight):
    result = compiled(causal, "sm_90", 64, torch.bfloat16, kernel, weight)
    assert result.spills <= SPILLED[kernel]


@pytest.mark.parametrize(
    "dim, dtype", [(64, torch.float16), (256, torch.bfloat16), (64, torch.float32)], ids=str
)
def test_shapes(dim, dtype):
    result = compiled(causal & sliding(64), "sm_90", dim, dtype)
    assert result.shared <= SHARED_LIMIT["sm_90"]


def test_no_call_is_left():
    result = compiled(expressions()["three"], "sm_90", 64, torch.bfloat16)
    assert "call.uni" not in result.assembly
