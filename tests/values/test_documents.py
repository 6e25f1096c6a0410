"""Documents by ids, by lengths and by cumulative lengths, and what is refused there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import document
from tests.cases.mask_pictures import check, ids
from tests.cases.mistakes import FLOATS, IDS, raises


def test_document_from_lengths_and_cu_seqlens() -> None:
    packed = "##... ##... ..#.. ..... ....."
    check(document.from_cu_seqlens(ids(0, 2, 3), total=5), packed)
    check(document.from_cu_seqlens(ids(0, 2, 2, 3), total=5), packed)
    check(document.from_lengths([2, 1], total=5), packed)
    check(document.from_lengths(torch.tensor([2, 0, 1]), total=5), packed)
    check(document.from_lengths([2, 1]), "##. ##. ..#")
    check(document.from_cu_seqlens(torch.tensor([0, 2, 3], dtype=torch.int32)), "##. ##. ..#")


def test_document_from_lengths_of_each_batch_entry() -> None:
    rows = "##. ##. ..#", "##. ##. ...", "### ### ###"
    check(document.from_lengths([[2, 1], [2], [3]]), *rows)
    check(document.from_lengths(torch.tensor([[2, 1], [2, 0], [0, 3]])), *rows)
    check(document.from_lengths([torch.tensor([2, 1]), torch.tensor([2]), ids(3)]), *rows)
    check(document.from_lengths([[1], [0, 2]], total=3), "#.. ... ...", "##. ##. ...")
    assert "end" not in document.from_lengths([[2, 1], [3]]).parameters  # all are filled


def test_documents() -> None:
    raises(TypeError, lambda: document(FLOATS), "document: ids", "int32 or int64", "float32")
    raises(TypeError, lambda: document([0, 1.5]), "document: ids", "got list of torch.float32")
    raises(TypeError, lambda: document(IDS, FLOATS), "document: kv_ids", "float32")
    raises(TypeError, lambda: document(IDS.bool()), "document: ids", "torch.bool")
    raises(ValueError, lambda: document(IDS[None, None]), "or [batch, length], got [1, 1, 4]")
    lengths, bounds = document.from_lengths, document.from_cu_seqlens
    raises(TypeError, lambda: lengths(FLOATS), "document.from_lengths: lengths", "float32")
    raises(TypeError, lambda: lengths([1.5]), "document.from_lengths: lengths", "1.5 of type float")
    raises(ValueError, lambda: lengths([3, -1]), "document.from_lengths: lengths", "got -1")
    raises(ValueError, lambda: lengths(IDS[None, None]), "or [batch, documents], got [1, 1, 4]")
    raises(ValueError, lambda: lengths(np.array(3)), "shape [documents] or", "got []")
    raises(TypeError, lambda: lengths([[2, 4], 6]), "lengths must be an integer", "got [2, 4]")
    raises(ValueError, lambda: lengths([[2, -4], [3]]), "lengths must be an integer >= 0, got -4")
    raises(ValueError, lambda: lengths([IDS[None]]), "shape [documents], got [1, 4]")
    raises(ValueError, lambda: lengths([[2, 4], [3]], total=5), "total", ">= 6, got 5")
    for found in (3, None):
        says = f"got {found} of type", "Write `document.from_lengths([3, 5])`."
        raises(TypeError, lambda found=found: lengths(found), "a list or an integer tensor", *says)
    for total in (4.5, "4", True, (4, 5)):
        says = "document.from_lengths: total must be an integer", repr(total)
        raises(TypeError, lambda total=total: lengths([3], total=total), *says)
    raises(TypeError, lambda: bounds(FLOATS), "document.from_cu_seqlens: cu_seqlens", "float32")
    raises(TypeError, lambda: bounds((0, 3.0)), "cu_seqlens", "got tuple of torch.float32")
    raises(ValueError, lambda: bounds(IDS[:0]), "shape [documents + 1], got [0]")


@pytest.mark.parametrize("made", [list, torch.tensor])
def test_lengths_of_documents(made: Callable[[list[int]], Any]) -> None:
    lengths = document.from_lengths
    raises(ValueError, lambda: lengths(made([3, -1, 4])), "from_lengths: lengths", ">= 0, got -1")
    raises(ValueError, lambda: lengths(made([3, 4]), total=5), "total", ">= 7, got 5")
    assert lengths(made([3, 4]), total=7).to_dense(7).sum() == 25


def test_cumulative_lengths_of_documents() -> None:
    bounds = document.from_cu_seqlens
    for entries in ([1, 4, 64], [-3, 64], [0, 4, 2, 64]):
        says = "start at 0 and never descend", str(entries), "document.from_lengths(lengths)"
        raises(ValueError, lambda entries=entries: bounds(torch.tensor(entries)), *says)
    raises(ValueError, lambda: bounds(torch.tensor([0, 3, 8]), total=5), "total", ">= 8, got 5")


def test_entries_that_cannot_be_read_are_not() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        ids = torch.tensor([0, 4, 9])
        assert document.from_cu_seqlens(ids, total=9).parameters
        assert document.from_lengths(ids, total=9).parameters
    assert document.from_cu_seqlens(
        torch.empty(3, dtype=torch.int64, device="meta"), total=9
    ).parameters


def test_too_few_positions() -> None:
    """What is told is what made the tensor, not the tensor."""
    calls = {
        "write total=9 there": document.from_lengths([3, 2]),
        "tree's `parents`": ma.tree([-1, 0]),
        "shared_prefix's `ids`": ma.shared_prefix([0, 0, 1], [-1, 0]),
        "Write q_len=9 where the slices": ma.attention_slices([[0, 3]], [[0, 3]], [0]),
        "Write length=9 where the indices": ma.vertical_slash.from_indices([1], [2], 5),
        "Pass ids with at least 9 entries": document([0, 1]),
    }
    for says, mask in calls.items():
        raises(ValueError, lambda mask=mask: mask.to_dense(9), "(q_len 9, kv_len 9)", says)


def test_batches_without_entries() -> None:
    query = torch.randn(0, 1, 4, 8)
    mask = ma.causal & document.from_lengths(torch.zeros(0, 3, dtype=torch.long), total=4)
    assert ma.attention(query, query, query, mask).shape == (0, 1, 4, 8)
