"""The kernel that finds real tokens, in Triton's interpreter."""

import os
import random

import pytest
import torch

from tests.cases.padded_rows import bounds_by_hand, padded_rows

tables = pytest.importorskip("maskalg.backends.triton.tables", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("length", [0, 1, 5, 31, 32, 33, 100])
def test_bounds(length, monkeypatch):
    monkeypatch.setattr(tables, "_BYTES_AT_ONCE", 32)
    rows = padded_rows(length, random.Random(length))
    assert torch.equal(tables.real_bounds(rows), bounds_by_hand(rows))
    wider = padded_rows(length + 3, random.Random(length))
    for part in (wider[:, 3:], wider[::2], wider.T.contiguous().T):
        assert torch.equal(tables.real_bounds(part), bounds_by_hand(part))
