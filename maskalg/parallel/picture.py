"""A plan as text: a line for each rank, the sequence from left to right."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .planning import Plan

_MARKS: Final = ("·", "▒", "█")  # not needed, keys needed, queries held
_ASCII: Final = (".", "+", "#")


def picture(plan: Plan, width: int, *, ascii_only: bool = False) -> list[str]:
    """A line for each rank, each of at most `width` parts of the sequence.

    `█` is a part in which the rank holds some queries; `▒` a part whose keys it needs in some
    layer; `·` any other part.
    """
    marks = _ASCII if ascii_only else _MARKS
    chunks = len(plan.owner)
    cells = min(width, chunks)
    begin = np.arange(cells) * chunks // cells
    needed = np.logical_or.reduce(plan.needed)
    lines = []
    for rank in range(plan.ranks):
        found = np.where(
            _some(plan.owner == rank, begin), 2, np.where(_some(needed[rank], begin), 1, 0)
        )
        lines.append("".join(marks[kind] for kind in found))
    return lines


def _some(chosen: NDArray[np.bool_], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether some element is chosen from each start up to the next."""
    return np.logical_or.reduceat(chosen, begin)
