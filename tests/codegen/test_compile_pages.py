"""Kernels that read keys in pages, compiled for GPUs that are not here."""

import os
from math import gcd

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.normal_form import bound
from maskalg.values.weights import softmax

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.families.decode import DECODE, decode_constants
from maskalg.backends.triton.families.forward import FORWARD, forward_constants, forward_spec
from maskalg.backends.triton.families.ragged import LISTED, RAGGED, RAGGED_JOINED, ragged_constants
from maskalg.backends.triton.launching.ahead import compile_kernel
from maskalg.backends.triton.offline import _Request, table_dtypes
from maskalg.backends.triton.trust import has_gluon
from maskalg.tiles.decode import decode_tiles_for

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)
INT = {"dtype": torch.int32}


def paged(target, mask=causal, dim=128, packed=False):
    starts = torch.zeros(5, **INT) if packed else None
    pages = ma.Pages(torch.zeros(4, 8, **INT), torch.zeros(4, **INT), starts)
    score = pages.within(mask.shift(q=torch.zeros(4, **INT)))
    return _Request(bound(score), target, dim, torch.bfloat16)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("page", [16, 128])
@pytest.mark.parametrize("kernel", ["decode", "forward"])
@pytest.mark.parametrize("of_pages", [torch.bfloat16, torch.int8, torch.float8_e4m3fn])
def test_kernels(of_pages, kernel, page, target):
    if of_pages == torch.float8_e4m3fn and target == "sm_80":
        pytest.skip("refused: float8 is read from sm_89 on")
    request = paged(target)
    plan = request.plan()
    if kernel == "decode":
        spec = DECODE
        constants = decode_constants(plan, softmax, request.decode_tiles(16)[0], target, page)
    else:
        spec = FORWARD
        constants = forward_constants(plan, softmax, plan.candidates[0], page)
    tables = table_dtypes(plan.hooks, request.form)
    held = {"k": of_pages, "v": of_pages}
    found = compile_kernel(spec, target, constants, torch.bfloat16, tables, held=held)
    if target == "sm_90" and (of_pages == torch.bfloat16 or page > 16):
        # Keys are on their way to shared memory while others are multiplied.
        assert "cp.async" in found.assembly
        assert found.stack is not None and found.stack <= 256


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("name", ["causal", "softcap"])
def test_packed_requests(name, page, target):
    """The three kernels of requests with few queries."""
    softcap = (causal & ma.sliding(90)) + ma.softcap(4.0) @ ma.alibi(torch.ones(8))
    request = paged(target, {"causal": causal, "softcap": softcap}[name], packed=True)
    plan = request.plan()
    tables = table_dtypes(plan.hooks, request.form)
    tile = decode_tiles_for(
        target, 128, 2, plan.pattern, 1, described=False, crowded=False, paged=True
    )[0]
    of = {
        spec: ragged_constants(spec, plan, softmax, tile, target, page)
        for spec in ((LISTED, RAGGED, RAGGED_JOINED) if page == 16 else (RAGGED,))
    }
    for spec, constants in of.items():
        found = compile_kernel(
            spec, target, constants, torch.bfloat16, tables, held={"packed": torch.bfloat16}
        )
        if target == "gfx942":
            assert ".vgpr_spill_count: 0" in found.assembly
        else:
            assert found.stack is not None and found.stack <= 64
        if spec is RAGGED and target == "sm_90":
            # Two programs share a multiprocessor, and waits for those before are in all of them.
            assert found.shared <= 227 * 1024 // 2
            assert "griddepcontrol.wait" in found.assembly


@pytest.mark.skipif(not has_gluon(), reason="needs Gluon")
@pytest.mark.parametrize(
    "name, dim, page, packed",
    [
        ("causal", 128, 16, False), ("causal", 128, 128, True), ("window", 64, 48, True),
        ("window", 128, 48, False), ("alibi", 128, 16, True), ("causal", 192, 16, True),
        ("causal", 256, 48, True), ("window", 256, 128, False),
    ],
)  # fmt: skip
def test_hopper(name, dim, page, packed):
    """A tile is copied in pieces, each by one instruction for 64 dimensions, and products are not
    serialised. Of packed requests, those with few queries are left out."""
    bias = ma.alibi(torch.ones(8))
    masks = {"causal": causal, "window": causal & ma.sliding(64), "alibi": causal + bias}
    request = paged("sm_90", masks[name], dim, packed)
    plan = request.plan()
    tile = plan.hopper
    if tile is None:
        pytest.skip("no tile of the Hopper kernel")
    constants = forward_constants(plan, softmax, tile, page, 16 if packed else 0)
    tables = table_dtypes(plan.hooks, request.form)
    found = compile_kernel(
        forward_spec(tile, torch.bfloat16, page), "sm_90", constants, torch.bfloat16, tables,
        held={"packed": torch.bfloat16 if packed else None},
    )  # fmt: skip
    pieces = tile.block_kv // gcd(page, tile.block_kv) * (dim // 64)
    queries = tile.consumers * (dim // 64)
    assert found.assembly.count("cp.async.bulk.tensor.4d.shared") == 2 * pieces + queries
    assert "wgmma" not in found.remarks and found.shared <= 227 * 1024
