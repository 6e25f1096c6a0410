"""Tables of packed segments that the GPU makes without waiting, against those of the CPU."""

import random

import pytest
import torch

import maskalg as ma
from maskalg.backends.triton.tables import segments
from tests.cases.forests import forest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 40, 700])
def test_random_trees(count):
    draw = random.Random(count)
    for behind in (0, 3, 2000):
        lengths = [draw.choice([0, 1, 2, 5, 40, 900]) for _ in range(count)]
        dtype = draw.choice([torch.int32, torch.int64])
        cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
        parents = torch.tensor(forest(count, draw), dtype=draw.choice([torch.int32, torch.int64]))
        total = sum(lengths) + behind + 1
        wanted = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents, total=total)
        given = (cu_seqlens.cuda(), parents.cuda())
        poison = torch.full((total,), 7, dtype=torch.int32, device="cuda")
        del poison
        found = ma.shared_prefix.from_cu_seqlens(*given, total=total)
        assert torch.equal(found.parameters["end"].cpu(), wanted.parameters["end"])
        # As on a GPU without Triton.
        by_torch = ma.shared_prefix.from_cu_seqlens(*given, total=total, device="cpu")
        assert torch.equal(by_torch.parameters["end"], wanted.parameters["end"])
        moved = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents, total=total, device="cuda")
        assert torch.equal(moved.parameters["end"], found.parameters["end"])
        wanted = ma.shared_prefix.depths(cu_seqlens, parents, total=total)
        poison = torch.full((total,), 7, device="cuda")
        del poison
        assert torch.equal(ma.shared_prefix.depths(*given, total=total).cpu(), wanted)


def test_the_kernel_is_launched(monkeypatch):
    launched = []
    kernel = segments.segment_ends
    counting = {(3,): lambda *a, **k: launched.append(kernel[(3,)](*a, **k))}
    monkeypatch.setattr(segments, "segment_ends", counting)
    given = [torch.tensor(numbers, device="cuda") for numbers in ([0, 2, 5], [-1, 0])]
    ma.shared_prefix.from_cu_seqlens(*given, total=5)
    assert len(launched) == 1
