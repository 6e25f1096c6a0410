"""Biases of distances that kernels read from tables, on a GPU: long enough for tables."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.backends.triton.arguments import tables_are_worth
from maskalg.engine.extents import Extents
from tests.cases.tables import compared
from tests.cases.weights import worst_error

pytestmark = pytest.mark.gpu

LENGTH, HEADS = 1501, 8


def biases():
    generator = torch.Generator("cuda").manual_seed(0)

    def learned(*shape):
        found = torch.randn(shape, generator=generator, device="cuda")
        return found.requires_grad_()

    buckets, clipped, slopes = learned(32, HEADS), learned(HEADS, 65), learned(HEADS)
    rates = [torch.rand(HEADS, device="cuda", generator=generator) + 0.1 for _ in range(2)]
    return {
        "t5": (ma.t5(buckets), [buckets]),
        "relative": (causal + ma.relative(clipped) + ma.alibi(slopes.detach()), [clipped]),
        "kerple": (causal & ma.sliding(300) + ma.kerple_log(*rates), []),
        "capped": (causal + ma.softcap(20.0) @ ma.t5(buckets), [buckets]),
    }


def inputs(dim, dtype=torch.bfloat16, heads=(HEADS, 2, 2)):
    torch.manual_seed(1)
    return [
        torch.randn(2, count, LENGTH, dim, device="cuda", dtype=dtype, requires_grad=True)
        for count in heads
    ]


@pytest.mark.parametrize("dim", [64, 128, 96])
@pytest.mark.parametrize("name", ["t5", "relative", "kerple", "capped"])
def test_results(name, dim):
    assert tables_are_worth(Extents(LENGTH, LENGTH, 2, HEADS))
    tensors = inputs(dim)
    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    score, tables = biases()[name]
    found = compared(tensors, score, tables, "triton")
    assert worst_error(found, compared(wide, score, tables, "reference")) < 2.5e-2


def test_a_graph_follows_what_is_learned():
    tensors = [tensor.detach() for tensor in inputs(64)]
    learned = torch.randn(32, HEADS, device="cuda")
    score = causal + ma.t5(learned)
    for _ in range(3):
        ma.attention(*tensors, score)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ma.attention(*tensors, score)
    wide = [tensor.double() for tensor in tensors]
    for seed in range(3):
        learned.copy_(torch.randn(32, HEADS, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        want = ma.attention(*wide, score, backend="reference")
        assert (out - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()
        again = ma.attention(*tensors, score)
        assert (again - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()
