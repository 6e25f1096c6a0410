"""Tiles that begin with documents, on a GPU: the same bits however packed."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, document
from tests.cases.aligned import MASKS, attend, check_alone, check_moved, inputs

pytestmark = pytest.mark.gpu

LENGTHS = [300, 1, 0, 129, 1000, 64, 77]


@pytest.mark.parametrize("dim", [64, 128, 40])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", list(MASKS))
def test_documents_alone_and_the_reference(name, dtype, dim):
    given = inputs(sum(LENGTHS), dim, 1, 1, dtype, "cuda")
    packed = check_alone(name, LENGTHS, given)
    wanted = attend(name, LENGTHS, [x.double() for x in given], backend="reference")
    for found, exact in zip(packed, wanted, strict=True):
        scale = exact.abs().max()
        assert (found - exact).abs().max() < (0.02 if dtype != torch.float32 else 2e-5) * scale


@pytest.mark.parametrize("weight", ["sink", "relu"])
def test_weights(weight):
    check_alone("causal", [50, 400], inputs(450, 64, 1, 2, torch.bfloat16, "cuda"), weight)


@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("others", [[1], [300, 0, 213]])
def test_other_places_beside_poison_and_in_a_batch(name, others):
    given = inputs(410, 64, 1, 3, torch.bfloat16, "cuda")
    check_moved(name, [70, 340], given, others)


@pytest.mark.parametrize("dim", [64, 72])
def test_any_strides(dim):
    *tensors, change = inputs(700, dim, 1, 4, torch.bfloat16, "cuda", heads=(4, 2))
    tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    one = change.new_ones(1, 1, 1, 1).expand_as(change)
    check_alone("causal", [201, 499], [*tensors, one])


def test_nothing_waits_and_a_graph_follows():
    *tensors, _ = inputs(515, 64, 1, 5, torch.bfloat16, "cuda")

    def step(cu):
        mask = causal & document.from_cu_seqlens(cu, total=515)
        return ma.attention(*tensors, mask, backend="aligned")

    cu = torch.tensor([0, 7, 100, 200, 201, 515], device="cuda")
    other = torch.tensor([0, 1, 40, 190, 190, 450], device="cuda")
    wanted = [step(cu.clone()), step(other)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(cu.clone())
        with torch.inference_mode():
            step(cu.clone())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(cu)
    for ends, exact in ((cu.clone(), wanted[0]), (other, wanted[1])):
        cu.copy_(ends)
        graph.replay()
        assert torch.equal(out, exact)
