"""The kernel compiled for GPUs that are not here: NVIDIA sm_80, sm_90, sm_100 and AMD gfx942."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine.normal_form import bound
from maskalg.tiles.backward import backward_tiles_for
from maskalg.tiles.forward import tiles_for
from tests.cases.many_numbers import windows
from tests.cases.pointers import pointer_to

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 65536}
ELEMENTS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


def compiled(expression, target, dim, dtype, kernel="forward", weight=ma.softmax):
    """A kernel as the backend would launch it for `expression`, at the first tile of its table."""
    from maskalg_kernels import backward, entries, forward, offline

    from maskalg.backends.triton import plan as backend
    from maskalg.backends.triton.constants import count_constants
    from maskalg.codegen.entries import entries_of
    from maskalg.codegen.hooks import Style, hooks_of
    from maskalg.codegen.store import load

    form = bound(weight.applied(expression))
    style = Style(ptx=target.startswith("sm_"))
    constants = {
        **backend.shape_constants(dim, dim, dtype, wide=False, arch=target),
        "TMA": backend.has_tma(target),
        "WEIGHTED": weight.formula is not None,
    }
    if kernel == "forward":
        hooks = hooks_of(form.structure, style)
        tile = tiles_for(target, dim, dtype.itemsize, backend.pattern_of(form.structure))[0]
        constants |= {"NORMALISED": weight.normalised}
    else:
        hooks = hooks_of(form.structure, style, backward=True)
        side = "keys" if kernel == "backward_keys" else "queries"
        pattern = backend.pattern_of(form.structure)
        tile = backward_tiles_for(target, dim, dtype.itemsize, pattern, of=side)[0]
    if kernel == "backward_entries":
        slots = tuple(slot.index for slot, t in form.tensors() if t.is_floating_point())
        entry = entries_of(form.structure, slots, style)[0]
        hooks = entry.hooks
        constants |= {"ENTRY": None, "PLACE": None, "MODE": entry.mode, "unit_ptr": None}
    module = load(hooks.source, hooks.digest)
    suffix = "_of_keys" if kernel == "backward_keys" else ""
    names = ["hold", "masked", "next_run", *(["biased"] if hooks.biased else [])]
    constants |= {"BIASED": None} | {n.upper(): getattr(module, n + suffix) for n in names}
    if kernel == "backward_entries" and not entry.constant:
        constants["ENTRY"] = module.entry
    elif kernel.startswith("backward"):
        constants["SLOPE"] = getattr(module, f"slope{suffix}") if hooks.sloped else None
    constants |= count_constants(hooks)
    tables = [pointer_to(a, form) for a in hooks.tables]
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    constants |= {"BLOCK_M": tile.block_q, "BLOCK_N": tile.block_kv}
    if kernel != "backward_entries":
        constants["ONE_LOOP"] = tile.one_loop
    function = next(getattr(m, kernel) for m in (forward, backward, entries) if hasattr(m, kernel))
    return offline.compile_kernel(function, target, constants, options, ELEMENTS[dtype], tables)


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
