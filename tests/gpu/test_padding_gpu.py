"""Where real tokens lie, found on the GPU without waiting."""

import random

import pytest
import torch

from maskalg.backends.triton import tables as by_kernel
from maskalg.values.masks.padding import real_bounds
from tests.cases.padded_rows import bounds_by_hand, padded_rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize("length", [0, 1, 7, 4096, 8191, 8192, 8193, 40000])
def test_bounds(length):
    assert by_kernel  # the operator's kernel is registered
    rows = padded_rows(length, random.Random(length))
    wanted = bounds_by_hand(rows)
    for part in (rows.cuda(), rows.T.contiguous().T.cuda(), rows.repeat(1, 2).cuda()[:, :length]):
        poison = torch.full((2, len(part)), 7, dtype=torch.int32, device="cuda")
        del poison
        assert torch.equal(real_bounds(part).cpu(), wanted)


def test_in_a_graph():
    rows = padded_rows(3000, random.Random(0)).cuda()
    real_bounds(rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = real_bounds(rows)
    for seed in (1, 2):
        other = padded_rows(3000, random.Random(seed))
        rows.copy_(other)
        graph.replay()
        assert torch.equal(found.cpu(), bounds_by_hand(other))
