"""Scales that kernels can divide by: what is added to scores is counted in units of the scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..call import Call

SMALLEST: Final = 2.0**-64
"""What biases are divided by without overflow, and what scores of any size vanish under."""


def positively_scaled(call: Call) -> tuple[Call, float]:
    """The call with a positive scale, and the factor that queries were multiplied by for it.

    The sign of a scale passes to the queries, and so does a scale of almost nothing.
    """
    if call.scale >= SMALLEST:
        return call, 1.0
    if call.scale <= -SMALLEST:
        return replace(call, query=-call.query, scale=-call.scale), -1.0
    return replace(call, query=call.query * call.scale, scale=1.0), call.scale
