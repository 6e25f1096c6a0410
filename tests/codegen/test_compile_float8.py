"""Kernels of float8 inputs, compiled without the GPU."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal
from tests.codegen.test_compile_hopper import compiled, expressions

pytest.importorskip("triton", reason="needs Triton")
import triton

from maskalg.backends.triton.offline import compile_offline
from maskalg.backends.triton.trust import has_gluon

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)
on_hopper = pytest.mark.skipif(
    not has_gluon(), reason="this Triton is not one the Gluon kernel was tested with"
)

# Beside the output stands that of a tile: a few numbers are put aside, once a row or tile.
SPILLS = {
    (64, "causal"): 60 if triton.__version__ >= "3.9" else 44,
    (64, "document"): 80,
    (128, "window"): 16,
}


@on_hopper
@pytest.mark.parametrize(
    "dim, name",
    [(64, "causal"), (64, "document"), (64, "softcap")]
    + [(128, name) for name in ("causal", "window", "document", "alibi")],
)
def test_expressions(name, dim):
    [report] = compile_offline(
        expressions()[name], "sm_90", dim, torch.float8_e4m3fn, backward=False
    )
    assert report.tier.startswith("Gluon")
    assert report.spills <= SPILLS.get((dim, name), 0)
    assert report.shared <= report.shared_limit
    assert not report.remarks


@on_hopper
def test_weights_are_never_taken_apart():
    """Four of them pass from a tile to the next in one register, and into a product."""
    result = compiled(causal, 128, dtype=torch.float8_e4m3fn)
    assert "m64n128k32.f32.e4m3.e4m3" in result.assembly
    conversions = result.assembly.count("cvt.rn.satfinite.e4m3x2.f32")
    assert conversions and result.assembly.count("prmt.b32") < conversions // 8


@pytest.mark.parametrize("target", ["sm_89", "sm_100", "sm_120", "gfx942", "gfx90a"])
def test_other_architectures(target):
    [report] = compile_offline(causal, target, 128, torch.float8_e4m3fn, backward=False)
    assert report.tier.startswith("plain")
    assert not report.spills


def test_refused_where_no_instruction_reads_it():
    with pytest.raises(ma.BackendError, match="from sm_89 on"):
        list(compile_offline(causal, "sm_80", 128, torch.float8_e4m3fn, backward=False))
