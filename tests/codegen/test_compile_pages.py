"""Kernels that read keys in pages, compiled for GPUs that are not here."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.engine.normal_form import bound
from maskalg.values.weights import softmax

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.families.decode import DECODE, decode_constants
from maskalg.backends.triton.families.forward import FORWARD, forward_constants
from maskalg.backends.triton.launching.ahead import compile_kernel
from maskalg.backends.triton.offline import _Request, table_dtypes

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)
INT = {"dtype": torch.int32}


def paged(target):
    pages = ma.Pages(torch.zeros(4, 8, **INT), torch.zeros(4, **INT))
    score = pages.within(causal.shift(q=torch.zeros(4, **INT)))
    return _Request(bound(score), target, 128, torch.bfloat16)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("page", [16, 128])
@pytest.mark.parametrize("kernel", ["decode", "forward"])
@pytest.mark.parametrize("held", [{}, {"k": torch.int8, "v": torch.int8}], ids=["", "int8"])
def test_kernels(held, kernel, page, target):
    request = paged(target)
    plan = request.plan()
    if kernel == "decode":
        spec = DECODE
        constants = decode_constants(plan, softmax, request.decode_tiles(16)[0], target, page)
    else:
        spec = FORWARD
        constants = forward_constants(plan, softmax, plan.candidates[0], page)
    tables = table_dtypes(plan.hooks, request.form)
    found = compile_kernel(spec, target, constants, torch.bfloat16, tables, held=held)
    if target == "sm_90" and (not held or page > 16):
        # Keys are on their way to shared memory while others are multiplied.
        assert "cp.async" in found.assembly
        assert found.stack is not None and found.stack <= 256
