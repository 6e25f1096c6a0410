"""A pattern of the rows of a mask: when it holds, and its tiles.

Tiles are chosen by structure, never by the values of a mask, and by what is known of lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias, TypeVar

from ..engine.normal_form import Structure
from ..formula.nodes import TRUE
from ..proof.proof import closed_forms_of
from .shapes import HopperBackwardTile, HopperTile, Least, Tile

SHORT_ROW: Final = 1024
"""The most keys of a row that takes the tiles of a window. Measured for softmaxes without bias."""

LONG_DOCUMENT: Final = {64: 5760, 128: 2048}
"""The mean length of a token's document from which on rows are long: for heads of up to 64
dimensions, and for larger ones. Measured at 64 and 128."""

LONG_PATH: Final = 1000
"""Likewise for paths of documents that share prefixes; shorter paths were not measured."""

MOST_SPARED: Final = (1.12, 1.3)
"""Ratios of the pairs in large tiles to those in small ones: up to the first, large tiles are
faster, and from the second on, small ones. Measured at 128 dimensions with masks by bits
(docs/performance.md)."""

LONG_RUN: Final = 16
"""The mean number of tiles of 128 in a run from which on one kernel for all gradients is faster."""

Counted: TypeAlias = Literal["small", "large", "large, in long runs"]
"""The tiles that serve rows whose tiles were counted."""


def tiles_of_counts(small: float, large: float, run: float) -> Counted | None:
    """The tiles that serve rows of these counts; None if the pattern of the formula does as well.

    Large tiles take less time for each pair, but compute pairs that small tiles would skip.

    Args:
        small, large: the mean number of tiles kept in a row of tiles, of 64 and of 128 positions.
        run: the mean number of tiles of 128 queries that follow one another in a row of keys.
    """
    if 2 * large > MOST_SPARED[1] * small:
        return "small"
    if 2 * large > MOST_SPARED[0] * small:
        return None
    return "large, in long runs" if run >= LONG_RUN else "large"


_T = TypeVar("_T")
PerBias: TypeAlias = Mapping[int, tuple[_T | None, _T | None]]
"""By size of heads (`size_of`): the tile for scores without a bias, and with one."""

Plain: TypeAlias = dict[tuple[int, int], tuple[Tile, ...]]
"""Candidates in order, by (largest padded head dimension, bytes of an element)."""


class Rows:
    """Facts of the rows of a structure that choose a pattern.

    Attributes:
        reads: whether a tensor is read position by position; for `gradients`, by the mask only.
        pairs: whether a tensor with an entry for each query and key is read.
        gradients: whether the tiles are those of gradients.
    """

    def __init__(self, structure: Structure, *, gradients: bool) -> None:
        reads = structure.mask_reads_positions if gradients else structure.reads_positions
        self.reads, self.pairs, self.gradients = bool(reads), structure.reads_pairs, gradients
        self._structure = structure

    @property
    def whole(self) -> bool:
        """Whether every key is kept."""
        return self._structure.mask == TRUE

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """How many bounds cut the first interval of a row on its left and on its right."""
        touched = closed_forms_of(self._structure).touched
        return (len(touched[0].lows), len(touched[0].highs)) if touched else (0, 0)

    @property
    def cut(self) -> bool:
        """Whether rows are cut at both ends by the query's position."""
        return min(self._ends) > 0

    @property
    def cut_again(self) -> bool:
        """Whether two bounds cut the left end of rows, such as a window's and a document's."""
        return self._ends[0] > 1


_NEXT: Final = {96: 128, 160: 256}


def of_size(table: Mapping[int, _T], size: int) -> _T | None:
    """The entry of a table for a size of heads; 96 and 160 take that of 128 and 256 unless they
    have their own."""
    return table.get(size, table.get(_NEXT.get(size, size)))


@dataclass(frozen=True)
class Pattern:
    """A pattern of rows, and its tiles.

    Attributes:
        name: its name in the keys of tuned tiles.
        place: its place in the order of patterns.
        holds: whether rows have this pattern; no rows have two.
        plain: candidates for the plain forward kernel on NVIDIA.
        hopper: tiles of the warp-specialised forward kernel. The plain kernel serves the cases that
            are not listed: biased rows of 64 dimensions that read nothing, which programs of four
            warps balance better, and those that would spill registers.
        weighted: likewise for weights with a formula, biased or not, by size only; they need
            neither a maximum nor its correction.
        float8: as `hopper`, for float8 inputs.
        long: whether the plain gradient kernels treat rows as long.
        queries, keys: tiles of the warp-specialised gradient kernels, up to 128 dimensions.
        weighted_queries, weighted_keys: likewise for weights with a formula, at 128 dimensions.
        one_pass: padded head dimensions at which one kernel computes all gradients.
        least: the least sizes for which it does.
        described: whether few queries take tiles of many rows, copied by descriptor.
        short: the pattern for rows of few keys, if it is another.
        long_documents, long_paths: the pattern for documents, or paths of documents that share
            prefixes, that are known to be long, if it is another.
        large: the pattern for rows that large tiles serve, if it is another.
        looked_up: whether one kernel for all gradients was measured with rows that are looked up.
    """

    name: str
    place: int
    holds: Callable[[Rows], bool]
    plain: Plain
    hopper: PerBias[HopperTile]
    weighted: Mapping[int, HopperTile]
    float8: PerBias[HopperTile]
    long: bool
    queries: PerBias[HopperBackwardTile]
    keys: PerBias[HopperBackwardTile]
    weighted_queries: HopperBackwardTile | None
    weighted_keys: HopperBackwardTile | None = None
    one_pass: tuple[int, ...] = ()
    least: Least = field(default=Least(kv_keys=512, keys=512, pairs=2**14, queries=32))
    described: bool = False
    short: str | None = None
    long_documents: str | None = None
    long_paths: str | None = None
    large: str | None = None
    looked_up: bool = False
