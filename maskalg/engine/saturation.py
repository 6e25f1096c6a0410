"""Numbers that stop at the ends of their range where they are converted."""

from __future__ import annotations

from math import copysign, inf
from typing import Final

import torch

MOST_WHOLE: Final = 2.0**31 - 128  # the largest integer of 32 bits that float32 holds
_MOST_OF_FLOAT32: Final = torch.finfo(torch.float32).max


def whole(numbers: torch.Tensor) -> torch.Tensor:
    """The integer part of real numbers: beyond all positions where infinite, 0 of a NaN."""
    return numbers.clamp(-MOST_WHOLE, MOST_WHOLE).nan_to_num().to(torch.int64)


def as_float32(number: float) -> float:
    """A number of Python that float32 can hold: beyond its range, an infinite one."""
    return copysign(inf, number) if abs(number) > _MOST_OF_FLOAT32 else number
