"""The work of each chunk of queries, and the chunks of keys it needs: read from the proof.

Chunks of queries and of keys are the same tokens, so one number of a chunk says both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..values.algebra import Mask

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Needs:
    """The chunks of keys that chunks of queries need under one mask.

    Attributes:
        tiles: float64 `[chunks]`, how many tiles of `chunk` by `chunk` each chunk of queries
            visits, of all batch entries and heads that the mask tells apart. A kernel visits the
            same tiles forward and backward, so both passes cost a multiple of it.
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

        Keys before the cut that some query after it needs, and keys after it that some query
        before it needs.
        """
        chunks = len(self.tiles)
        place = np.arange(chunks)
        last = np.maximum(_extreme_row(self, chunks, last=True), place)
        least = np.minimum(_extreme_row(self, chunks, last=False), place)
        ends = np.zeros(chunks + 2)
        for begin, past in ((place, last), (least, place)):
            ends += np.bincount(begin + 1, minlength=chunks + 2)
            ends -= np.bincount(past + 1, minlength=chunks + 2)
        return cast(Reals, ends.cumsum()[:-1])

    def of_owners(self, owner: Numbers, ranks: int) -> NDArray[np.bool_]:
        """Which chunks of keys each rank needs, `[ranks, chunks]`; `owner[chunk]` is a rank."""
        chunks = len(self.tiles)
        begin, size = owner[self.row] * (chunks + 1), ranks * (chunks + 1)
        change = np.bincount(begin + self.first, minlength=size)
        change -= np.bincount(begin + self.end, minlength=size)
        covered = change.reshape(ranks, chunks + 1).cumsum(axis=1)[:, :-1]
        return covered > 0


def _extreme_row(needs: Needs, chunks: int, *, last: bool) -> Numbers:
    """The last or the first chunk of queries that needs each chunk of keys; its own where none.

    A segment is two overlapping ones of a power of two of chunks. Those are halved until they are
    single chunks, so the cost follows segments and chunks, not the chunks within segments.
    """
    none = -1 if last else chunks
    choose = np.maximum if last else np.minimum
    size = np.maximum(needs.end - needs.first, 1)
    level = np.frexp(size.astype(np.float64))[1] - 1
    # Where several are written to one place, the last one stays: rows ascend, or descend.
    order = slice(None) if last else slice(None, None, -1)
    row, first, end, level = (x[order] for x in (needs.row, needs.first, needs.end, level))
    found = np.full(chunks, none)
    for power in range(int(level.max(initial=0)), -1, -1):
        half = 1 << power
        own = level == power
        here = np.full(chunks, none)
        here[first[own]] = row[own]
        there = np.full(chunks, none)
        there[end[own] - half] = row[own]
        found = choose(found, choose(here, there))
        if power:
            step = half // 2
            found[step:] = choose(found[step:], found[: chunks - step])
    return found
