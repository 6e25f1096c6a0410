"""`ma.nn.Attention` on a GPU: compiled with new documents each step, exported, never waiting."""

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding

pytestmark = pytest.mark.gpu


def module():
    slopes = torch.nn.Parameter(torch.linspace(0.1, 0.8, 4))
    return ma.nn.Attention(causal & sliding(70) + alibi(slopes)).cuda()


def inputs():
    torch.manual_seed(0)
    shapes = [(2, heads, 515, 64) for heads in (4, 2, 2)]
    return [torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in shapes]


def ids_of(step):
    return torch.arange(515, device="cuda", dtype=torch.int32) // (60 + 10 * step)


def step_of(layer, tensors, ids):
    out = layer(*tensors, document(ids))
    return [out, *torch.autograd.grad(out.float().sin().sum(), [*tensors, *layer.parameters()])]


def test_compiled_steps_with_new_documents():
    torch._dynamo.reset()
    layer, tensors = module(), inputs()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for step in range(3):
        ids = ids_of(step)
        out = compiled(*tensors, document(ids))
        leaves = [*tensors, *layer.parameters()]
        found = [out, *torch.autograd.grad(out.float().sin().sum(), leaves)]
        for got, want in zip(found, step_of(layer, tensors, ids), strict=True):
            assert torch.equal(got, want)


def test_exported():
    layer, tensors = module(), [t.detach() for t in inputs()]
    program = torch.export.export(layer, tuple(tensors))
    assert torch.equal(program.module()(*tensors), layer(*tensors))


def test_a_step_after_the_first_waits_for_nothing():
    layer, tensors = module(), inputs()
    step_of(layer, tensors, ids_of(0))
    layouts = [ids_of(step) for step in (1, 2)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for ids in layouts:
            step_of(layer, tensors, ids)
    finally:
        torch.cuda.set_sync_debug_mode("default")
