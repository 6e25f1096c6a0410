"""Rows masked by tensors that are read at every element: documents, which may be short."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from ..shapes import HopperBackwardTile, Tile
from . import banded, dense

_PROGRAMS: Final = (dense.THREE_PROGRAMS, dense.THREE_PROGRAMS)
# A mask that reads tables needs the registers in which half of the queries would lie.
_WIDE_HEADS: Final = replace(dense.WIDE_HEADS, held=False)
_SHORT: Final = (banded.SHORT_DOCUMENTS, banded.SHORT_DOCUMENTS)
_ANEW: Final = HopperBackwardTile(64, 2, consumers=1, anew=True)


def _holds(rows: Rows) -> bool:
    of_pairs = rows.pairs and not rows.cut and not rows.gradients
    return rows.reads and not rows.cut_again and not of_pairs


PATTERN: Final = Pattern(
    name="reading",
    place=3,
    holds=_holds,
    plain={
        **dense.PLAIN,
        (64, 2): (Tile(64, 64, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
        (128, 2): (Tile(64, 32, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
    },
    hopper={
        64: _PROGRAMS,
        128: _SHORT,
        160: _SHORT,
        192: _SHORT,
        256: (_WIDE_HEADS, _WIDE_HEADS),
    },
    weighted={128: banded.SHORT_DOCUMENTS},
    float8={64: (dense.ROW_BY_ROW, dense.ROW_BY_ROW), 128: _SHORT},
    long=False,
    queries={
        64: (banded.SHORT_QUERIES, banded.SHORT_QUERIES),
        128: (banded.TWO_PROGRAMS, banded.TWO_PROGRAMS),
    },
    keys={
        64: (
            HopperBackwardTile(64, 3, persistent=True, consumers=1),
            HopperBackwardTile(64, 3, consumers=1),
        ),
        128: (_ANEW, _ANEW),
    },
    weighted_queries=dense.TWO_OVERLAPPED,
    one_pass=(64, 128),
    least=dense.PATTERN.least._replace(keys=1024, pairs=2**15, document=24),
    long_documents="long documents",
    long_paths="long paths",
    large="dense",
    looked_up=True,
)
