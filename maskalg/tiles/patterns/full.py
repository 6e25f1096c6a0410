"""Rows of all keys: no mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from ..shapes import HopperTile
from . import dense

EQUAL_ROWS: Final = HopperTile(2, 128, 2, 168, 240, 24, False, True, overlap=True)


def _holds(rows: Rows) -> bool:
    return rows.whole and not (rows.reads or rows.pairs)


PATTERN: Final[Pattern] = replace(
    dense.PATTERN,
    name="full",
    place=0,
    holds=_holds,
    hopper={**dense.PATTERN.hopper, 128: (EQUAL_ROWS, dense.TWO_CONSUMERS)},
)
