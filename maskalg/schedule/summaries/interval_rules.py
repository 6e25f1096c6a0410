"""Interval arithmetic on integers: the smallest and the largest value of a sum, a product, ...

Ends are tensors, of many intervals at once; what was not known is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

Pair = tuple[torch.Tensor, torch.Tensor]  # smallest and largest; or surely and perhaps
Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

UNBOUNDED: Final = 2**58  # 32 of them add up without overflow
_KNOWN: Final = 2**52
"""Bounds beyond it are counted as infinite: a sum of them and of known ones is not below it."""
_PRODUCT_OF: Final = 2**30  # factors below it multiply without overflow


def saturated(low: torch.Tensor, high: torch.Tensor) -> Pair:
    """Bounds with those that are too far to be exact made infinite, each to its side."""
    return (
        low.clamp(max=_KNOWN).masked_fill_(low < -_KNOWN, -UNBOUNDED),
        high.clamp(min=-_KNOWN).masked_fill_(high > _KNOWN, UNBOUNDED),
    )


def folded(parts: list[Pair], join_low: Join, join_high: Join) -> Pair:
    low, high = parts[0]
    for other_low, other_high in parts[1:]:
        low, high = join_low(low, other_low), join_high(high, other_high)
    return low, high


def _corners(parts: list[Pair], operation: Join) -> Pair:
    (a, b), (c, d) = parts
    corners = torch.stack([operation(x, y) for x in (a, b) for y in (c, d)])
    return corners.amin(0), corners.amax(0)


def _product(parts: list[Pair]) -> Pair:
    result = parts[0]
    for part in parts[1:]:
        ends = torch.broadcast_tensors(*result, *part)
        small = torch.stack(ends).abs().amax(0) < _PRODUCT_OF
        low, high = _corners([result, part], torch.mul)
        result = torch.where(small, low, -UNBOUNDED), torch.where(small, high, UNBOUNDED)
    return result


def _quotient(parts: list[Pair]) -> Pair:
    divisor = parts[1][0].clamp(min=1), parts[1][1].clamp(min=1)
    low, high = _corners([parts[0], divisor], torch.floor_divide)
    # What was infinite is so still, though a part of it is not.
    return (
        torch.where(parts[0][0] < -_KNOWN, -UNBOUNDED, low),
        torch.where(parts[0][1] > _KNOWN, UNBOUNDED, high),
    )


def _remainder(parts: list[Pair]) -> Pair:
    return torch.zeros_like(parts[1][0]), parts[1][1] - 1


RULES: Final[dict[str, Callable[[list[Pair]], Pair]]] = {
    "add": lambda parts: folded(parts, torch.add, torch.add),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "min": lambda parts: folded(parts, torch.minimum, torch.minimum),
    "max": lambda parts: folded(parts, torch.maximum, torch.maximum),
    "where": lambda parts: folded(parts, torch.minimum, torch.maximum),
}
