"""Sums of integers of 64 bits that stop at the ends of their range instead of wrapping."""

from __future__ import annotations

import torch


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
