"""Numbers that stop at the ends of their range: sums of 64 bits, and what is converted."""

from __future__ import annotations

from math import copysign, inf
from typing import Final

import torch

MOST_WHOLE: Final = 2.0**31 - 128  # the largest integer of 32 bits that float32 holds
_MOST_OF_FLOAT32: Final = torch.finfo(torch.float32).max


def saturated_sum(parts: list[torch.Tensor]) -> torch.Tensor:
    """The sum, or the end of 64 bits that a partial sum is past; small operands come first."""
    parts = sorted(parts, key=lambda part: part.numel())
    total = parts[0]
    for part in parts[1:]:
        result = total + part
        total = torch.where(((total ^ result) & (part ^ result)) < 0, _end(total), result)
    return total


def saturated_difference(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left - right`, or the end of 64 bits that it is past."""
    result = left - right
    return torch.where(((left ^ right) & (left ^ result)) < 0, _end(left), result)


def _end(number: torch.Tensor) -> torch.Tensor:
    """The smallest integer for a negative number, else the largest."""
    return (number >> 63) ^ (2**63 - 1)


def whole(numbers: torch.Tensor) -> torch.Tensor:
    """The integer part of real numbers: beyond all positions where infinite, 0 of a NaN."""
    return numbers.clamp(-MOST_WHOLE, MOST_WHOLE).nan_to_num().to(torch.int64)


def as_float32(number: float) -> float:
    """A number of Python that float32 can hold: beyond its range, an infinite one."""
    return copysign(inf, number) if abs(number) > _MOST_OF_FLOAT32 else number
