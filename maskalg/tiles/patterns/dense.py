"""Long rows, cut at one end at most, such as causal ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Plain, Rows
from ..shapes import HopperBackwardTile, HopperTile, Tile

# Measured on an H200 (sm_90, see docs/performance.md).
PLAIN: Final[Plain] = {
    (64, 2): (Tile(64, 128, 4, 2, one_loop=True), Tile(64, 64, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (256, 2): (Tile(128, 64, 8, 2), Tile(64, 32, 4, 2), Tile(64, 32, 8, 2)),
    (64, 4): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (128, 4): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (256, 4): (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
}

OVERLAPPED: Final = HopperTile(2, 128, 2, 168, 240, 24, False, True, overlap=True)
TWO_CONSUMERS: Final = HopperTile(2, 128, 2, 168, 240, 24, True, True)
THREE_NARROW: Final = HopperTile(3, 64, 3, 128, 160, 32, True, False)
THREE_PROGRAMS: Final = HopperTile(1, 64, 3, 80, 136, 24, False, True)
ROW_BY_ROW: Final = replace(THREE_PROGRAMS, persistent=False)
_THREE_CONSUMERS: Final = HopperTile(3, 128, 2, 128, 160, 32, True, True)
THREE_AHEAD: Final = replace(_THREE_CONSUMERS, stages=4)
WIDE_HEADS: Final = HopperTile(2, 64, 2, 168, 240, 24, False, True, overlap=True)
_WIDE_IN_TURNS: Final = replace(WIDE_HEADS, turns=True, persistent=False)

# With float8, registers hold the output of a tile beside the running output.
FLOAT8_SHORT: Final = HopperTile(1, 128, 2, 128, 232, 24, False, True)
_FLOAT8_LONG: Final = HopperTile(2, 128, 3, 168, 240, 24, True, False)
_FLOAT8_NARROW: Final = HopperTile(3, 128, 3, 128, 160, 32, True, False)

TWO_OVERLAPPED: Final = HopperBackwardTile(64, 4, overlap=True)
ROWS_OF_QUERIES: Final = HopperBackwardTile(64, 3, persistent=True)
ROWS_OF_KEYS: Final = HopperBackwardTile(64, 2, persistent=True)


def _holds(rows: Rows) -> bool:
    return not (rows.reads or rows.pairs or rows.whole or rows.cut)


PATTERN: Final = Pattern(
    name="dense",
    place=1,
    holds=_holds,
    plain=PLAIN,
    hopper={
        64: (_THREE_CONSUMERS, None),
        96: (TWO_CONSUMERS, TWO_CONSUMERS),
        128: (OVERLAPPED, TWO_CONSUMERS),
        160: (TWO_CONSUMERS, TWO_CONSUMERS),
        192: (OVERLAPPED, OVERLAPPED),
        256: (_WIDE_IN_TURNS, WIDE_HEADS),
    },
    weighted={128: THREE_NARROW},
    float8={64: (_FLOAT8_NARROW, ROW_BY_ROW), 128: (_FLOAT8_LONG, FLOAT8_SHORT)},
    long=True,
    queries={
        96: (ROWS_OF_QUERIES, TWO_OVERLAPPED),
        128: (TWO_OVERLAPPED, TWO_OVERLAPPED),
    },
    keys={
        64: (HopperBackwardTile(64, 3, consumers=1), HopperBackwardTile(64, 3)),
        96: (ROWS_OF_KEYS, HopperBackwardTile(64, 2)),
        128: (HopperBackwardTile(64, 2), HopperBackwardTile(64, 2)),
    },
    weighted_queries=TWO_OVERLAPPED,
    weighted_keys=HopperBackwardTile(64, 2),
    one_pass=(64, 128),
    described=True,
    short="banded",
)
