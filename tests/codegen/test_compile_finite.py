"""Copies without NaN, compiled for GPUs: rows are copied by 16 bytes at a time."""

import re

import pytest

pytest.importorskip("triton", reason="needs Triton")
import triton
from maskalg_kernels import finite
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGETS = [GPUTarget("cuda", arch, 32) for arch in (80, 90, 100)] + [GPUTarget("hip", "gfx942", 64)]
CONSTANTS = {
    "HEAD_DIM": 128, "VALUE_DIM": 64, "HEAD_PAD": 128, "VALUE_PAD": 64, "ROWS": 32,
    "EXPONENT": 0x7F80,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.arch))
@pytest.mark.parametrize("name", ["finite_keys", "finite_queries"])
def test_compiled(name, target):
    kernel = getattr(finite, name)
    constants = CONSTANTS | ({"WILD_KEY": 0x7FC0} if name == "finite_keys" else {"WEIGHTED": False})
    signature, aligned = {}, {}
    for place, argument in enumerate(kernel.arg_names):
        if argument.isupper():
            signature[argument] = "constexpr"
        elif argument.endswith("_ptr"):
            signature[argument] = "*fp32" if "lse" in argument else "*i16"
            aligned[(place,)] = [["tt.divisibility", 16]]
        elif argument.startswith("stride") and argument.endswith("d"):
            signature[argument], constants[argument] = "constexpr", 1
        else:
            signature[argument] = "i32"
            if argument.startswith("stride"):
                aligned[(place,)] = [["tt.divisibility", 16]]
    found = triton.compile(ASTSource(kernel, signature, constants, aligned), target=target)
    text = found.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    wide = r"ld\.global\.v4\.b32|global_load_dwordx4"
    assert re.search(wide, text)
