"""Runs of tiles from intervals of keys: disjoint, in order, each all PARTIAL or all FULL.

Gluon kernels call these functions too: they use only what Triton and Gluon spell alike.
"""

import triton
import triton.language as tl

NO_TILE = tl.constexpr(2**30)


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
