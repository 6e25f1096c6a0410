"""Assigns chunks to ranks: equally many chunks and equal work for each rank, with few cuts.

Put the chunks on a circle and slide a window of one rank's number of chunks around it. The work in
the window, averaged over all places, is a rank's share. A step of the window changes its work by
the difference of two chunks, so at some place it is the share to within that difference. That
window is the first rank's. Join the ends, and go on with the remaining chunks and ranks. Each rank
makes at most two cuts. (Two thieves of a necklace with two kinds of beads need two: Alon, 1987.)

Among the good places, the window stops where the fewest keys must cross the new cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from .work import Numbers, Reals

_ABOVE: Final = (0.005, 0.01)  # how much more than its share a window may have, for cheaper cuts
_SWAPS: Final = 256
_PARTNERS: Final = 8


def candidates(work: Reals, crossing: Reals, ranks: int) -> Iterator[Numbers]:
    """Candidate ranks of chunks: whole ranges; a range from each end; by windows on a circle.

    Whole ranges are best if all queries have equal work, as in windows and images; a range from
    each end if work grows evenly, as under `causal`. Windows take longest to find.
    """
    chunks = len(work)
    place = np.arange(chunks)
    yield place * ranks // chunks
    half = place * 2 * ranks // chunks
    both_ends = np.minimum(half, 2 * ranks - 1 - half)
    counts = np.bincount(both_ends, minlength=ranks)
    if counts.max() - counts.min() <= 1:
        yield both_ends
    for above in _ABOVE:
        yield assigned(work, crossing, ranks, above)


def assigned(work: Reals, crossing: Reals, ranks: int, above: float) -> Numbers:
    """The rank of each chunk by windows on a circle, int64 `[chunks]`.

    Args:
        work: float64 `[chunks]`, the work of each chunk of queries.
        crossing: float64 `[chunks + 1]`, the cost of a cut before each chunk.
        ranks: number of ranks; their numbers of chunks differ by at most one.
        above: how much more than its share, relative to it, the work of a window may be. Twice as
            much is left to a rank before single chunks are exchanged.
    """
    share = float(work.sum()) / ranks
    circle = _Circle(np.arange(len(work)), work, crossing[:-1].copy())
    circle.cut[:1] = 0.0  # the ends of the sequence are apart
    owner = np.zeros(len(work), dtype=np.int64)
    for rank in range(ranks - 1):
        size = -(-len(circle.chunk) // (ranks - rank))
        start = circle.window(size, ranks - rank, share, above)
        taken, circle = circle.without(start, size)
        owner[taken] = rank
    owner[circle.chunk] = ranks - 1
    _swap(owner, work, ranks, above)
    return _in_order(owner, ranks)


@dataclass(frozen=True)
class _Circle:
    """Chunks without a rank so far, their work, and the cost of a cut before each, 0 at a joint."""

    chunk: Numbers
    work: Reals
    cut: Reals

    def window(self, size: int, ranks: int, share: float, above: float) -> int:
        """Where the window of the next of `ranks` ranks starts."""
        count = len(self.chunk)
        sums = np.zeros(count + size + 1)
        np.cumsum(np.concatenate([self.work, self.work[:size]]), out=sums[1:])
        amount = sums[size : size + count] - sums[:count]
        left = sums[count]
        # Neither this rank nor the mean of the others may have much more than its share.
        least = left - (ranks - 1) * share * (1 + above / 2)
        places = ((amount >= least) & (amount <= share * (1 + above))).nonzero()[0]
        if len(places):
            cost = self.cut[places] + self.cut[(places + size) % count]
            places = places[cost == cost.min()]
        else:
            places = np.arange(count)
        return int(places[np.abs(amount[places] - left / ranks).argmin()])

    def without(self, start: int, size: int) -> tuple[Numbers, _Circle]:
        """The chunks of a window, and the circle without them, which begins where it ended."""
        end = start + size
        around = max(end - len(self.chunk), 0)  # chunks of the window at the circle's beginning
        taken = np.concatenate([self.chunk[start:end], self.chunk[:around]])
        rest = [
            np.concatenate([x[end:], x[around:start]]) for x in (self.chunk, self.work, self.cut)
        ]
        rest[2][:1] = 0.0
        return taken, _Circle(*rest)


def _swap(owner: Numbers, work: Reals, ranks: int, above: float) -> None:
    """Exchange single chunks of the rank with the most work while that helps."""
    loads = np.bincount(owner, weights=work, minlength=ranks)
    most_allowed = loads.sum() / ranks * (1 + 2 * above)
    for _ in range(_SWAPS):
        order = loads.argsort(kind="stable")
        most = int(order[-1])
        if loads[most] <= most_allowed:
            return
        for least in order[: min(_PARTNERS, ranks - 1)].tolist():
            pair = _exchange(owner, work, (most, least), loads[most] - loads[least])
            if pair is not None:
                break
        else:
            return
        owner[pair[0]], owner[pair[1]] = least, most
        moved = work[pair[0]] - work[pair[1]]
        loads[most] -= moved
        loads[least] += moved


def _exchange(
    owner: Numbers, work: Reals, between: tuple[int, int], apart: float
) -> tuple[int, int] | None:
    """One chunk of each of two ranks whose exchange about halves their difference in work."""
    ours, theirs = ((owner == rank).nonzero()[0] for rank in between)
    theirs = theirs[work[theirs].argsort()]
    at = np.searchsorted(work[theirs], work[ours] - apart / 2)
    at = np.stack([at.clip(max=len(theirs) - 1), (at - 1).clip(min=0)])
    moved = work[ours] - work[theirs[at]]
    moved[(moved <= 0) | (moved >= apart)] = np.inf
    way, best = np.unravel_index(np.abs(moved - apart / 2).argmin(), moved.shape)
    if moved[way, best] == np.inf:
        return None
    return int(ours[best]), int(theirs[at[way, best]])


def ranges_of(owner: Numbers, ranks: int) -> Numbers:
    """How many ranges of consecutive chunks each rank has, int64 `[ranks]`."""
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    return np.bincount(owner[starts], minlength=ranks)


def _in_order(owner: Numbers, ranks: int) -> Numbers:
    """Ranks renumbered in the order of their first chunks: neighbours have neighbouring tokens."""
    first = np.full(ranks, len(owner))
    np.minimum.at(first, owner, np.arange(len(owner)))
    number = np.empty(ranks, dtype=np.int64)
    number[first.argsort(kind="stable")] = np.arange(ranks)
    return number[owner]
