"""Rows cut at both ends by the query's position: windows.

Rows have few tiles. Small tiles waste fewer elements at both edges of the band, and one loop for
masked and full tiles has less code and needs fewer registers than two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from ..shapes import HopperBackwardTile, HopperTile, Tile
from . import dense

PLAIN: Final = {
    **dense.PLAIN,
    (64, 2): (Tile(64, 64, 4, 2, one_loop=True),),
    (128, 2): (Tile(64, 64, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
}

SHORT_DOCUMENTS: Final = HopperTile(1, 64, 2, 128, 232, 24, False, True)
_SHORT_ROWS: Final = HopperTile(2, 128, 2, 168, 240, 24, True, True)

SHORT_QUERIES: Final = HopperBackwardTile(64, 3, overlap=True, persistent=True, consumers=1)
TWO_PROGRAMS: Final = HopperBackwardTile(64, 2, consumers=1)
_OF_64: Final = HopperBackwardTile(64, 3, consumers=1)


def _holds(rows: Rows) -> bool:
    return rows.cut and not rows.reads


PATTERN: Final[Pattern] = replace(
    dense.PATTERN,
    name="banded",
    place=2,
    holds=_holds,
    plain=PLAIN,
    hopper={
        64: (dense.THREE_PROGRAMS, None),
        128: (_SHORT_ROWS, SHORT_DOCUMENTS),
        160: (dense.TWO_CONSUMERS, dense.TWO_CONSUMERS),
        192: (dense.OVERLAPPED, dense.OVERLAPPED),
        256: (dense.WIDE_HEADS, dense.WIDE_HEADS),
    },
    weighted={128: _SHORT_ROWS},
    float8={
        64: (dense.ROW_BY_ROW, dense.ROW_BY_ROW),
        128: (dense.FLOAT8_SHORT, dense.FLOAT8_SHORT),
    },
    long=False,
    queries={
        64: (None, SHORT_QUERIES),
        96: (dense.ROWS_OF_QUERIES, TWO_PROGRAMS),
        128: (dense.TWO_OVERLAPPED, TWO_PROGRAMS),
    },
    keys={
        64: (replace(_OF_64, persistent=True), _OF_64),
        96: (dense.ROWS_OF_KEYS, TWO_PROGRAMS),
        128: (TWO_PROGRAMS, TWO_PROGRAMS),
    },
    # A window of 1024 keys has 7.9 tiles in rows of 4096, and 8.4 in rows of 8192.
    least=dense.PATTERN.least._replace(keys=1024, pairs=2**15, band=7.5),
    short=None,
)
