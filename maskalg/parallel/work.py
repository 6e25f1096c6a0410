"""The work of each chunk of queries, and the chunks of keys it needs: read from the proof.

Chunks of queries and of keys are the same tokens, so they have the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..values.algebra import Mask

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Needs:
    """The chunks of keys that chunks of queries need under one mask.

    Attributes:
        tiles: float64 `[chunks]`, how many tiles of `chunk` by `chunk` each chunk of queries
            visits, in all batch entries and heads that the mask distinguishes. A kernel visits the
            same tiles forward and backward, so both passes cost a multiple of this number.
        row, first, end: int64 `[segments]`, chunks of keys `first <= chunk < end` that the chunk
            of queries `row` needs. Rows ascend.
    """

    tiles: Reals
    row: Numbers
    first: Numbers
    end: Numbers

    @staticmethod
    def of(
        mask: Mask, length: int, chunk: int, batch: int | None = None, heads: int | None = None
    ) -> Needs:
        """The needs of a mask over `length` queries and keys."""
        found = mask.segments(length, block=chunk, batch=batch, heads=heads)
        chunks = found.shape[2]
        start = found.row_start.numpy()
        first, end = (each.numpy().astype(np.int64) for each in (found.first, found.end))
        row = np.repeat(np.arange(len(start) - 1), np.diff(start))
        if len(start) > chunks + 1:  # rows of several heads or batch entries: one after the other
            row %= chunks
            order = np.argsort(row, kind="stable")
            row, first, end = row[order], first[order], end[order]
        tiles = np.bincount(row, weights=end - first, minlength=chunks)
        return Needs(tiles.astype(np.float64), row, first, end)

    def crossing(self) -> Reals:
        """The cost of a cut before each chunk, float64 `[chunks + 1]`, in chunks of keys.

        The cost is the number of keys before the cut that some query after it needs, plus the
        number of keys after the cut that some query before it needs.
        """
        chunks = len(self.tiles)
        place = np.arange(chunks)
        least, last = _extreme_rows(self, chunks)
        least, last = np.minimum(least, place), np.maximum(last, place)
        ends = np.zeros(chunks + 2)
        for begin, past in ((place, last), (least, place)):
            ends += np.bincount(begin + 1, minlength=chunks + 2)
            ends -= np.bincount(past + 1, minlength=chunks + 2)
        return cast(Reals, ends.cumsum()[:-1])

    def of_owners(self, owner: Numbers, ranks: int) -> Flags:
        """Which chunks of keys each rank needs, `[ranks, chunks]`; `owner[chunk]` is a rank."""
        chunks = len(self.tiles)
        begin, size = owner[self.row] * (chunks + 1), ranks * (chunks + 1)
        change = np.bincount(begin + self.first, minlength=size)
        change -= np.bincount(begin + self.end, minlength=size)
        covered = change.reshape(ranks, chunks + 1).cumsum(axis=1)[:, :-1]
        return covered > 0


def _extreme_rows(needs: Needs, chunks: int) -> tuple[Numbers, Numbers]:
    """The first and the last chunk of queries that need each chunk of keys; `chunks`, -1 if none.

    Each segment is covered by two overlapping segments of a power of two of chunks, which are
    halved down to single chunks. So the cost grows with segments plus chunks, not with the chunks
    within segments.
    """
    size = np.maximum(needs.end - needs.first, 1)
    level = np.frexp(size.astype(np.float64))[1] - 1
    levels = int(level.max(initial=0)) + 1
    begins = [level * chunks + start for start in (needs.first, needs.end - (1 << level))]

    def extreme(none: int, choose: np.ufunc, turn: slice) -> Numbers:
        found = np.full((2, levels * chunks), none)
        for half, begin in zip(found, begins, strict=True):
            half[begin[turn]] = needs.row[turn]  # of several for one place, the last one stays
        halved = choose(*found).reshape(levels, chunks)
        for power in range(levels - 1, 0, -1):
            larger, smaller, step = halved[power], halved[power - 1], 1 << power - 1
            choose(smaller, larger, out=smaller)
            choose(smaller[step:], larger[:-step], out=smaller[step:])
        return cast(Numbers, halved[0])

    # Rows ascend.
    descending, ascending = slice(None, None, -1), slice(None)
    return extreme(chunks, np.minimum, descending), extreme(-1, np.maximum, ascending)
