"""Kernels whose tiles begin with documents, compiled for GPUs that are not here."""

import os

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, sliding
from maskalg.codegen.hooks import Style
from maskalg.engine.normal_form import bound

pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 65536}
PACKED = document.from_lengths([40, 24])
WINDOW = causal & sliding(64) & PACKED + ma.alibi(torch.ones(4))


def compiled(expression, target, kernel):
    from maskalg.backends.triton.constants import weight_constants
    from maskalg.backends.triton.families import backward, forward
    from maskalg.backends.triton.launching.ahead import compile_kernel
    from maskalg.backends.triton.offline import table_dtypes
    from maskalg.backends.triton.plan import Inputs, Told, backward_plan, structure_plan

    form = bound(expression)
    style = Style(ptx=target.startswith("sm_"), far=True, aligned=True)
    at = (form.structure, Told(style), Inputs(128, 128, torch.bfloat16, target))
    plan, gradients = structure_plan(*at), backward_plan(*at)
    assert plan.hopper is None and not plan.tma
    if kernel == "forward":
        hooks, tiles = plan.hooks, plan.candidates
        spec, constants = forward.FORWARD, forward.forward_constants(plan, ma.softmax, tiles[0])
    else:
        hooks = gradients.hooks
        tiles = gradients.sides[kernel].tiles
        spec = backward.gradient_spec(kernel, tiles[0])
        constants = backward.gradient_constants(gradients, kernel, tiles[0])
    assert "S[-1]" in hooks.source and constants["ALIGNED"]
    constants |= weight_constants(ma.softmax)
    # The list of rows is one of the tables that are empty else.
    tables = table_dtypes(hooks, form)
    assert len(tables) > len(hooks.tables)
    return compile_kernel(spec, target, constants, torch.bfloat16, tables, tma=False)


@pytest.mark.parametrize("target", list(SHARED_LIMIT))
@pytest.mark.parametrize("kernel", ["forward", "queries", "keys"])
def test_compiles(kernel, target):
    result = compiled(WINDOW, target, kernel)
    assert result.shared <= SHARED_LIMIT[target]
    assert (result.stack or 0) <= 320
    if target == "sm_90":
        assert "wgmma" in result.assembly
    print(f"{kernel} {target}: {result.registers} registers, {result.stack} bytes of stack")
