"""Rows masked by tensors that are read at every element, and cut by a window too."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern, Rows
from . import banded, reading


def _holds(rows: Rows) -> bool:
    return rows.reads and rows.cut_again


PATTERN: Final[Pattern] = replace(
    reading.PATTERN,
    name="reading band",
    place=6,
    holds=_holds,
    plain=banded.PLAIN,
    one_pass=(),
    long_documents=None,
    long_paths=None,
    looked_up=False,
)
