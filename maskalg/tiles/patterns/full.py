"""Rows of all keys: no mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from ..shapes import HopperBackwardTile
from . import dense


def _holds(rows: Rows) -> bool:
    return rows.whole and not (rows.reads or rows.pairs)


PATTERN: Final[Pattern] = replace(
    dense.PATTERN,
    name="full",
    place=0,
    holds=_holds,
    keys={
        **dense.PATTERN.keys,
        64: (HopperBackwardTile(128, 2, consumers=1), HopperBackwardTile(64, 3)),
    },
)
