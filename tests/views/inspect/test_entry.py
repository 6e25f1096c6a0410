"""A batch entry and a head of a mask as a mask of its own: the same elements, proved alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import maskalg as ma
from maskalg import batch, causal, head, kv_idx, q_idx
from maskalg.views.inspect.choice import Choice, one_entry

IDS = torch.arange(12) // torch.tensor([[2], [3], [5]])
FLAGS = torch.arange(3 * 2 * 12).view(3, 2, 12) % 5 < 2
PLACES = torch.arange(36).view(3, 12) % 12

MASKS: dict[str, Callable[[], ma.Mask]] = {
    "documents": lambda: causal & ma.document(IDS),
    "documents and lengths": lambda: ma.document(IDS) & ma.padding(torch.tensor([4, 0, 9])),
    "flags by head": lambda: ma.table(FLAGS)[batch, head, kv_idx] | causal,
    "by head alone": lambda: ma.table(FLAGS[0])[head, q_idx] & ma.sliding(3),
    "bare": lambda: (q_idx + batch >= kv_idx) & (head + 1 >= q_idx - kv_idx),
    "one for all heads": lambda: ma.table(FLAGS[:, :1])[batch, head, kv_idx],
    "read in two ways": lambda: ma.table(IDS)[batch, q_idx] >= ma.table(IDS)[0, kv_idx],
    "a read in a read": lambda: (
        ma.table(IDS)[batch, ma.table(PLACES)[batch, q_idx]] == ma.table(IDS)[batch, kv_idx]
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_an_entry_keeps_what_the_mask_keeps_there(name: str) -> None:
    mask = MASKS[name]()
    dense = mask.to_dense(12, batch=3, heads=2).expand(3, 2, 12, 12)
    for at in (Choice(0, 0), Choice(2, 1), Choice(1, 0)):
        entry = one_entry(mask, at)
        assert not entry.mask_node.indices() & {"batch", "head"}
        assert torch.equal(entry.to_dense(12)[0, 0], dense[at.entry, at.head])


def test_documents_of_an_entry_are_proved_as_documents() -> None:
    entry = one_entry(causal & ma.document(IDS), Choice(1))
    alone = causal & ma.document(IDS[1].clone())
    assert repr(entry.prove()) == repr(alone.prove())
    assert entry.segments(12, block=2).counts() == alone.segments(12, block=2).counts()
