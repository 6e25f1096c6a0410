"""Masks whose tiles are labelled, on a GPU: new tables, streams and graphs."""

import pytest
import torch

import maskalg as ma
from tests.cases.gradients import check_gradients

pytestmark = pytest.mark.gpu

LENGTH, BLOCK = 4037, 128
BLOCKS = -(-LENGTH // BLOCK)
"""Tiles of 64 positions: 64 by 64 of them, which is enough for labels."""


def table(seed):
    torch.manual_seed(seed)
    kept = torch.rand(2, BLOCKS, BLOCKS) < 0.2
    return (kept | torch.eye(BLOCKS, dtype=torch.bool)).cuda()


def mask_of(kept):
    return ma.causal & ma.block_table(kept[:, None], BLOCK)


def inputs():
    torch.manual_seed(0)
    return [
        torch.randn(2, heads, LENGTH, 64, device="cuda", dtype=torch.bfloat16)
        for heads in (2, 1, 1)
    ]


def check(out, tensors, kept):
    want = ma.attention(*[t.double() for t in tensors], mask_of(kept), backend="reference")
    assert (out - want).abs().max().item() <= 1.2e-2 * want.abs().max().item()


def test_gradients():
    tensors = [t.requires_grad_() for t in inputs()]
    check_gradients(tensors, mask_of(table(0)), most=2e-2)


def test_a_table_that_changes():
    kept, tensors = table(0), inputs()
    mask = mask_of(kept)
    for seed in range(4):
        kept.copy_(table(seed))
        check(ma.attention(*tensors, mask), tensors, kept)


def test_a_new_table_on_two_streams():
    """What one stream makes of a table is not there yet on another."""
    tensors, kept = inputs(), table(1)
    wanted = ma.attention(*tensors, mask_of(kept))
    check(wanted, tensors, kept)
    for _ in range(10):
        mask = mask_of(kept.clone())
        torch.cuda.synchronize()
        streams, found = [torch.cuda.Stream() for _ in range(2)], []
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(10_000_000)
            found.append(ma.attention(*tensors, mask))
        with torch.cuda.stream(streams[1]):
            found.append(ma.attention(*tensors, mask))
        torch.cuda.synchronize()
        assert all(torch.equal(one, wanted) for one in found)


@pytest.mark.parametrize("length", [LENGTH, 1500], ids=["labelled", "too few tiles"])
def test_a_graph_of_a_table_no_call_has_seen(length):
    tensors = [t[:, :, :length] for t in inputs()]
    ma.attention(*tensors, mask_of(table(0)))  # compiles the kernels
    kept = table(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ma.attention(*tensors, mask_of(kept))
    # A call outside of the graph must not rest on what only a replay makes.
    check(ma.attention(*tensors, mask_of(kept)), tensors, kept)
    for seed in range(2, 5):
        kept.copy_(table(seed))
        graph.replay()
        check(out, tensors, kept)
