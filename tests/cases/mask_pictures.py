"""Small masks drawn as text, and integer tensors to make them of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import maskalg as ma
from maskalg.testing import assert_same_mask


def picture(text: str) -> NDArray[np.bool_]:
    """`"#. ##"` is `[[True, False], [True, True]]`, one word a query."""
    return np.array([[c == "#" for c in row] for row in text.split()])


def check(mask: ma.Mask, *pictures: str) -> None:
    """The mask shows these pictures, one a batch entry."""
    wanted = np.stack([picture(text) for text in pictures])[:, None]
    found = mask.to_dense(*wanted.shape[2:])
    assert found.dtype == torch.bool and found.shape == wanted.shape
    assert_same_mask(mask, wanted, *wanted.shape[2:])


def ids(*entries: Any) -> torch.Tensor:
    return torch.tensor(entries)
