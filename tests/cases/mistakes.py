"""What tests of mistakes share: a few expressions, and the question what a message says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from maskalg import (
    alibi,
    causal,
    errors,
)

IDS = torch.tensor([0, 0, 1, 1])
SLOPES = torch.tensor([0.5, 0.25])
BIAS = alibi(SLOPES)
SCORE = causal + BIAS
FLOATS = torch.ones(4)
FLAGS = torch.ones(4, 4, dtype=torch.bool)


def raises(kind: type[Exception], mistake: Callable[[], object], *says: str) -> None:
    """The mistake raises `kind`, one of ours, and its message holds each of the texts."""
    with pytest.raises(kind) as caught:
        mistake()
    assert isinstance(caught.value, errors.MaskalgError)
    for text in says:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"


def traced(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


Mistake = Callable[[], object]
