"""Rows that are not cut, with a tensor's entry for each query and key."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from . import dense, reading


def _holds(rows: Rows) -> bool:
    read = rows.reads and (rows.gradients or rows.cut_again)
    return rows.pairs and not rows.cut and not read


# At 64 dimensions biases of pairs are faster in two kernels: one kernel for all gradients reads the
# table entry by entry, the kernel of dQ by lines.
PATTERN: Final[Pattern] = replace(
    dense.PATTERN,
    name="pairs",
    place=7,
    holds=_holds,
    plain=reading.PATTERN.plain,
    hopper={
        64: (dense.ROW_BY_ROW, dense.ROW_BY_ROW),
        128: (dense.THREE_NARROW, replace(dense.TWO_CONSUMERS, persistent=False)),
    },
    weighted=reading.PATTERN.weighted,
    float8=reading.PATTERN.float8,
    one_pass=(128,),
    described=False,
    short=None,
    large="dense",
)
