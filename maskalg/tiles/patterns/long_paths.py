"""Rows of long paths of documents that share prefixes: the tiles of long documents, except at 64
dimensions, where those were not measured for paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..pattern import Pattern
from . import long_documents, reading

PATTERN: Final[Pattern] = replace(
    long_documents.PATTERN,
    name="long paths",
    place=5,
    hopper={**long_documents.PATTERN.hopper, 64: reading.PATTERN.hopper[64]},
)
