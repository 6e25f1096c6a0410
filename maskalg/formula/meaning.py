"""What formulas mean: for evaluation, for certificates and for the verifier alike.

Integers are those of mathematics, whatever their size, so that no operation wraps; `operations.py`
has a row for each. A width has what enters a formula: an entry is an integer of the dtype of its
table, a number is at most `INT32_MAX` from 0, and a real number that is made an integer stops at
`MOST_WHOLE`. A divisor counts as 1 where it is less, and an index of a table stops at its ends.

Real numbers are float32. Each operation on them rounds once, to the nearest number, in the order of
`nodes.in_order`; so does an integer that is made a real number, but for one that may be past 64
bits, which is a double first. Of 0 and -0, the smaller and the larger may be either. What linear
arithmetic knows of integers is said in `laws.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, inf
from typing import Final

import torch

from .functions import FUNCTIONS
from .operations import Interval

MOST_WHOLE: Final = 2.0**31 - 128
"""The largest integer of 32 bits that float32 holds."""

_MOST_OF_FLOAT32: Final = torch.finfo(torch.float32).max


def whole(numbers: torch.Tensor) -> torch.Tensor:
    """The integer part of real numbers: beyond all positions where infinite, 0 of a NaN."""
    return numbers.clamp(-MOST_WHOLE, MOST_WHOLE).nan_to_num().to(torch.int64)


def as_float32(number: float) -> float:
    """A number of Python that float32 can hold: beyond its range, an infinite one."""
    return copysign(inf, number) if abs(number) > _MOST_OF_FLOAT32 else number


def ends_of_entries(dtype: torch.dtype) -> Interval:
    """The least and the largest entry of a table of integers or Booleans."""
    if dtype == torch.bool:
        return 0, 1
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


COMPARISONS: Final = {"ge": torch.ge, "gt": torch.gt, "eq": torch.eq}

REALS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "negative": torch.negative,
    "multiply": torch.multiply,
    "divide": torch.true_divide,
    "power": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "greater or equal": COMPARISONS["ge"],
    "greater": COMPARISONS["gt"],
    "equal": COMPARISONS["eq"],
    **{name: function.evaluated for name, function in FUNCTIONS.items()},
}
"""The operations on real numbers. One of NaN is NaN, and compares with nothing."""
