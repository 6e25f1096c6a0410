"""The kernels of segments in Triton's interpreter, against the operations of torch."""

import os
import random

import pytest
import torch

import maskalg as ma
from tests.cases.forests import forest

segments = pytest.importorskip("maskalg.backends.triton.tables", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("at_once", [4, 16, 512])
@pytest.mark.parametrize("count", [1, 2, 3, 9, 40])
def test_random_trees(count, at_once, monkeypatch):
    monkeypatch.setattr(segments, "_AT_ONCE", at_once)
    draw = random.Random(count)
    for behind in (0, 3, 21):
        lengths = [draw.choice([0, 1, 2, 5, 40]) for _ in range(count)]
        dtype = draw.choice([torch.int32, torch.int64])
        cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
        parents = torch.tensor(forest(count, draw), dtype=draw.choice([torch.int32, torch.int64]))
        total = sum(lengths) + behind + 1
        wanted = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents, total=total)
        found = segments.segment_ends(cu_seqlens, parents, total)
        assert torch.equal(found, wanted.parameters["end"])
        wanted = ma.shared_prefix.depths(cu_seqlens, parents, total=total)
        assert torch.equal(segments.segment_depths(cu_seqlens, parents, total), wanted)
