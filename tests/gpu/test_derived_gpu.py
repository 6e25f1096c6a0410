"""Tables that are derived from others, in CUDA graphs and on several streams."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, per_document, prefix

pytestmark = pytest.mark.gpu

LENGTH = 300
INNER = prefix(2) | causal
BOUNDS = (7, 40, 90)


def ids_of(size):
    return torch.arange(LENGTH, device="cuda") // size


def step(q, mask):
    """Two calls before a backward pass, as of two layers."""
    out = ma.attention(q, q, q, mask)
    out = ma.attention(out, q, q, mask)
    return torch.autograd.grad(out.square().sum(), q)[0]


def wanted(q, size):
    return step(q, per_document(INNER, ids_of(size)))


def tensors():
    torch.manual_seed(0)
    return torch.randn(1, 2, LENGTH, 64, device="cuda", requires_grad=True)


def test_a_training_step_in_a_graph_follows_writes():
    q, ids = tensors(), ids_of(BOUNDS[0])
    mask = per_document(INNER, ids)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step(q, mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(q, mask)
    for size in BOUNDS:
        ids.copy_(ids_of(size))
        graph.replay()
        torch.testing.assert_close(found, wanted(q, size))


def test_a_capture_computes_nothing_for_calls_outside():
    q, ids = tensors(), ids_of(BOUNDS[0])
    mask = per_document(INNER, ids)
    step(q, mask)
    ids.copy_(ids_of(BOUNDS[1]))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(q, mask)
    torch.testing.assert_close(step(q, mask), wanted(q, BOUNDS[1]))


def test_each_stream_computes_it_after_a_write():
    q, ids = tensors(), ids_of(BOUNDS[0])
    mask = per_document(INNER, ids)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for size in BOUNDS:
        ids.copy_(ids_of(size))
        torch.cuda.synchronize()
        found = []
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(step(q, mask))
        torch.cuda.synchronize()
        for each in found:
            torch.testing.assert_close(each, wanted(q, size))
