"""Tensors that move queries past the table of ids: reads are clamped there, and labels follow."""

from __future__ import annotations

import pytest
import torch

from maskalg import causal, document, kv_idx, q_idx, sliding
from maskalg.testing import assert_labels_exact

IDS = torch.arange(24) // 5
RECURRING = torch.tensor([0, 2, 1] * 8)
MASKS = {
    "documents": lambda d: d,
    "other documents": lambda d: ~d,
    "causal": lambda d: causal & d,
    "above the diagonal": lambda d: d & ~causal,
    "far before": lambda d: d & (q_idx >= kv_idx + 3),
    "far after": lambda d: d & (kv_idx >= q_idx + 2),
    "outside of a window": lambda d: d & ~sliding(3),
    "or a window": lambda d: d | sliding(4),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("ids", [(IDS,), (RECURRING,), (IDS, IDS.roll(3))])
def test_labels(name: str, ids: tuple[torch.Tensor, ...]) -> None:
    mask = MASKS[name](document(*ids))
    for move in (-30, -7, 5, 20, 24, 60):
        for kv in (0, 3):
            moved = mask.shift(q=torch.tensor(move), kv=kv)
            for block in (1, (3, 8)):
                assert_labels_exact(moved, 16, 20, block=block)


def test_each_batch_entry_by_itself() -> None:
    mask = (causal & document(IDS)).shift(q=torch.tensor([-9, 3, 40]))
    assert_labels_exact(mask, 16, 20, block=4, batch=3)
