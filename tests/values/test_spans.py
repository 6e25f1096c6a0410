"""Spans: whatever the ids are, and known by intervals where they are contiguous."""

from __future__ import annotations

import pytest
import torch

from maskalg import causal, spans

IDS = {
    "in order": [-1, -1, 3, 3, -1, 5, 5, -1],
    "interrupted": [3, 3, -1, 3, -1, 2, 2, -5],
    "not in order": [7, 7, 1, 1, -1, 4, 4, 4],
    "only outside": [-1] * 8,
    "one": [0] * 8,
    "rows": [[-1, -1, 3, 3, -1, 5, 5, -1], [3, 3, -1, 3, -1, 2, 2, -5]],
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", IDS)
def test_keeps_pairs_of_one_span(name: str, dtype: torch.dtype) -> None:
    ids = torch.atleast_2d(torch.tensor(IDS[name], dtype=dtype))
    wanted = (ids[:, :, None] == ids[:, None]) & (ids[:, None] >= 0)
    mask = spans(ids if name == "rows" else ids[0])
    assert torch.equal(mask.to_dense(8)[:, 0], wanted)
    assert torch.equal(mask.bind(ids=ids if name == "rows" else ids[0]).to_dense(8)[:, 0], wanted)


def test_follows_what_is_written_into_the_ids() -> None:
    ids = torch.tensor([0, 0, -1, 1])
    mask = spans(ids)
    assert mask.to_dense(4).sum() == 5
    ids[:] = torch.tensor([0, -1, 0, 0])
    assert mask.to_dense(4)[0, 0].int().tolist() == [
        [1, 0, 1, 1],
        [0, 0, 0, 0],
        [1, 0, 1, 1],
        [1, 0, 1, 1],
    ]


def test_blocks_between_spans_are_known_to_be_empty() -> None:
    """At a length at which no block is looked at."""
    ids = torch.where(torch.arange(1 << 20) % 1024 < 256, torch.arange(1 << 20) // 1024, -1)
    found = (causal | spans(ids)).segments(1 << 20, block=128)
    rows = 1 << 13
    above = 1024  # of a span of two blocks, the second is above the diagonal of the first
    assert found.counts()[0] == rows * (rows - 1) // 2 - above
