"""Runs of tiles from intervals of keys: disjoint, in order, each all PARTIAL or all FULL.

Gluon kernels call these functions too: they use only what Triton and Gluon spell alike.
"""

import triton
import triton.language as tl

NO_TILE = tl.constexpr(2**30)

GRAIN = tl.constexpr(64)
"""Positions of a listed tile; every tile of a kernel is made of some, or is part of one."""


@triton.jit
def tiles(low, high, some, kv_len, BLOCK: tl.constexpr):
    """First tile and one past the last of the keys low..high; equal without keys or `some`."""
    low = tl.maximum(low, 0)
    high = tl.minimum(high, kv_len - 1)
    some = some & (low <= high)
    first = tl.where(some, low // BLOCK, 0).to(tl.int32)
    return first, tl.where(some, high // BLOCK + 1, 0).to(tl.int32)


@triton.jit
def run_from(j, touched, unfull, kv_len, BLOCK: tl.constexpr):
    """The first run at or after tile j: (first, end, partial); first is NO_TILE when none is left.

    `touched` and `unfull` are tuples of (first, end). Each run reaches as far as one interval of
    each kind does, so overlapping intervals never visit a tile twice.
    """
    first = tl.cast(NO_TILE, tl.int32)
    for i in tl.static_range(len(touched)):
        a, b = touched[i]
        start = tl.maximum(a, j)
        first = tl.minimum(first, tl.where(start < b, start, NO_TILE))
    end = first
    for i in tl.static_range(len(touched)):
        a, b = touched[i]
        end = tl.maximum(end, tl.where((a <= first) & (first < b), b, first))
    # A last tile cut by the length is PARTIAL: its bound is checked where masks are.
    ragged = kv_len // BLOCK
    cut_until = tl.where(first >= ragged, end, first)
    cut_from = tl.where(first < ragged, ragged, NO_TILE)
    for i in tl.static_range(len(unfull)):
        c, d = unfull[i]
        cut_until = tl.maximum(cut_until, tl.where((c <= first) & (first < d), d, first))
        cut_from = tl.minimum(cut_from, tl.where((first < c) & (c < d), c, NO_TILE))
    partial = cut_until > first
    return first, tl.minimum(end, tl.where(partial, cut_until, cut_from)), partial


@triton.jit
def run_of_list(j, q0, q1, starts, firsts, ends, kv_len, BLOCK: tl.constexpr):
    """As `run_from`, from lists of the runs of each GRAIN of q0..q1; every run is PARTIAL."""
    found = tl.cast(NO_TILE, tl.int32)
    until = tl.cast(NO_TILE, tl.int32)
    for row in range((q0 // GRAIN).to(tl.int32), (q1 // GRAIN).to(tl.int32) + 1):
        # The first run that ends after the beginning of tile j.
        low = tl.load(starts + row)
        stop = tl.load(starts + row + 1)
        high = stop
        while low < high:
            middle = (low + high) // 2
            after = tl.minimum(tl.load(ends + middle) * GRAIN, kv_len) > j * BLOCK
            high = tl.where(after, middle, high)
            low = tl.where(after, low, middle + 1)
        some = low < stop
        first = tl.load(firsts + low, mask=some, other=0) * GRAIN // BLOCK
        last = tl.minimum(tl.load(ends + low, mask=some, other=0) * GRAIN, kv_len) - 1
        first = tl.where(some, tl.maximum(first, j), NO_TILE).to(tl.int32)
        end = tl.where(some, last // BLOCK + 1, NO_TILE).to(tl.int32)
        # Of runs that begin together the longest; the others are met again from its end on.
        longest = tl.where(first == found, tl.maximum(end, until), until)
        until = tl.where(first < found, end, longest)
        found = tl.minimum(found, first)
    return found, until, found < NO_TILE
