"""Copies without NaN, compiled for GPUs: rows are copied by 16 bytes at a time."""

import re

import pytest

pytest.importorskip("triton", reason="needs Triton")
import triton
from maskalg_kernels import finite
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = [GPUTarget("cuda", arch, 32) for arch in (80, 90, 100)] + [GPUTarget("hip", "gfx942", 64)]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.arch))
@pytest.mark.parametrize("sizes", [(128, 64), (128, 64, 64)], ids=["keys", "queries"])
def test_compiled(sizes, target):
    count = len(sizes)
    sums = "*fp32" if count == 3 else "constexpr"
    strides = (("i32", "i32", "i32", "constexpr"),) * count
    kinds = [("*i16",) * count] * 2 + [strides] * 2 + [sums] * 4 + ["i32"] * 2 + ["constexpr"] * 6
    signature = dict(zip(finite.finite_rows.arg_names, kinds, strict=True))
    constants = {"SIZES": sizes, "PADS": sizes, "ROWS": 32, "EXPONENT": 0x7F80}
    constants |= {"WILD": (0x7FC0, 0, 0)[:count], "WEIGHTED": False}
    constants |= {(place, i, 3): 1 for place in (2, 3) for i in range(count)}
    if count == 2:
        constants |= dict.fromkeys(finite.finite_rows.arg_names[4:8])
    places = [(place, i) for place in (0, 1) for i in range(count)]
    places += [(place, i, axis) for place in (2, 3) for i in range(count) for axis in range(3)]
    places += [(place,) for place in range(4, 8) if count == 3]
    aligned = {place: [["tt.divisibility", 16]] for place in places}
    found = triton.compile(
        ASTSource(finite.finite_rows, signature, constants, aligned), target=target
    )
    text = found.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    wide = r"ld\.global\.v4\.b32|global_load_dwordx4"
    assert re.search(wide, text)
