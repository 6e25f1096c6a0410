"""Where the real tokens of padded rows lie."""

import random

import pytest
import torch

from maskalg.values.masks.padding import real_bounds
from tests.cases.padded_rows import bounds_by_hand, padded_rows


@pytest.mark.parametrize("length", [0, 1, 2, 9, 64])
def test_bounds(length: int) -> None:
    for seed in range(20):
        rows = padded_rows(length, random.Random(seed))
        assert torch.equal(real_bounds(rows), bounds_by_hand(rows))
        assert torch.equal(torch.ops.maskalg.real_bounds(rows), bounds_by_hand(rows))
