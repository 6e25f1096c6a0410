"""Rows of documents that are known to be long."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern
from . import banded, dense, reading

PATTERN: Final[Pattern] = replace(
    reading.PATTERN,
    name="long documents",
    place=4,
    holds=lambda rows: False,  # chosen by lengths, see `as_long`
    hopper={
        **reading.PATTERN.hopper,
        64: (dense.THREE_AHEAD, dense.THREE_PROGRAMS),
        96: (dense.TWO_CONSUMERS, banded.SHORT_DOCUMENTS),
        128: (dense.OVERLAPPED, banded.SHORT_DOCUMENTS),
        160: (dense.TWO_CONSUMERS, banded.SHORT_DOCUMENTS),
        192: (dense.OVERLAPPED, banded.SHORT_DOCUMENTS),
    },
    one_pass=(),
    long_documents=None,
    long_paths=None,
    looked_up=False,
)
