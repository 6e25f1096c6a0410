"""Runs of tiles from intervals of keys: disjoint, in order, each all PARTIAL or all FULL.

What a loop keeps true is stated above it, and proved of its text for every table of intervals
(`maskalg/verifier/walk`). `t` is any tile, `touched` and `unfull` say whether it holds a pair to
keep, and one to drop; `within(table, i, t)` is whether one of the first i intervals holds it.

Gluon kernels call these functions too: they use only what Triton and Gluon spell alike.
"""

from typing import NamedTuple

import triton
import triton.language as tl

NO_TILE = tl.constexpr(2**30)


class Span(NamedTuple):
    """A row of tiles as NEXT_RUN takes it: its first and last query (or key), the length of the
    other side, and the other arguments of runs."""

    first: tl.tensor
    last: tl.tensor
    batch: tl.tensor
    head: tl.tensor
    length: tl.tensor
    S: tl.tuple
    T: tl.tuple


@triton.jit
def over_runs(VISIT: tl.constexpr, state, of, place, span, hooks, tile, ONE_LOOP: tl.constexpr):
    """`state` after VISIT of every run of a row of tiles.

    A run of either kind has a loop of its own, or both share ONE_LOOP with a branch around the
    mask: less code and fewer registers, which is faster where most runs are short.
    """
    j = tl.zeros((), tl.int32)
    # invariant: (j >= 0) & (visits(state) == (touched & (t < j)))
    # invariant: implies(unmasked(state), ~unfull)
    # until: NO_TILE - j
    while j < NO_TILE:
        first, end, partial = hooks.NEXT_RUN(j, *span, tile.BLOCK)
        if ONE_LOOP:
            state = VISIT(state, of, place, first, end, hooks, tile, partial, True)
        else:
            last_full = tl.where(partial, first, end)
            state = VISIT(state, of, place, first, last_full, hooks, tile, False, False)
            state = VISIT(state, of, place, last_full, end, hooks, tile, True, True)
        j = end
    return state


class SpanEitherWay(NamedTuple):
    """A row of tiles that are numbered from the last one with from_last 1."""

    from_last: tl.tensor
    first: tl.tensor
    last: tl.tensor
    batch: tl.tensor
    head: tl.tensor
    length: tl.tensor
    S: tl.tuple
    T: tl.tuple


class Run(NamedTuple):
    """The tiles tile <= j < end, all PARTIAL or all FULL; with none left, tile is NO_TILE."""

    tile: tl.tensor
    end: tl.tensor
    partial: tl.tensor


@triton.jit
def first_tile(span, NEXT_RUN: tl.constexpr, BLOCK: tl.constexpr):
    """The first run of a row of tiles, for loops that go from tile to tile."""
    tile, end, partial = NEXT_RUN(tl.cast(0, tl.int32), *span, BLOCK)
    return Run(tile, end, partial)


@triton.jit
def next_tile(run, span, NEXT_RUN: tl.constexpr, BLOCK: tl.constexpr):
    """The rest of a run past its first tile, or the next run."""
    tile, end, partial = run
    tile += 1
    if tile == end:
        tile, end, partial = NEXT_RUN(tile, *span, BLOCK)
    return Run(tile, end, partial)


@triton.jit
def tiles(low, high, some, kv_len, BLOCK: tl.constexpr):
    """First tile and one past the last of the keys low..high; equal without keys or `some`."""
    low = tl.maximum(low, 0)
    high = tl.minimum(high, kv_len - 1)
    some = some & (low <= high)
    first = tl.where(some, low // BLOCK, 0).to(tl.int32)
    return first, tl.where(some, high // BLOCK + 1, 0).to(tl.int32)


@triton.jit
def run_of_spans(j, touched, unfull, kv_len, BLOCK: tl.constexpr):
    """The first run at or after tile j: (first, end, partial); first is NO_TILE when none is left.

    `touched` and `unfull` are tuples of (first, end). Each run reaches as far as one interval of
    each kind does, so overlapping intervals never visit a tile twice.
    """
    first = tl.cast(NO_TILE, tl.int32)
    # invariant: (j <= first) & (first <= NO_TILE)
    # invariant: (first == NO_TILE) | within(touched, i, first)
    # invariant: implies(within(touched, i, t) & (t >= j), first <= t)
    for i in tl.static_range(len(touched)):
        a, b = touched[i]
        start = tl.maximum(a, j)
        first = tl.minimum(first, tl.where(start < b, start, NO_TILE))
    end = first
    # invariant: (first <= end) & (end <= NO_TILE)
    # invariant: (first < end) == within(touched, i, first)
    # invariant: implies((first <= t) & (t < end), within(touched, i, t))
    for i in tl.static_range(len(touched)):
        a, b = touched[i]
        end = tl.maximum(end, tl.where((a <= first) & (first < b), b, first))
    # A last tile cut by the length is PARTIAL: its bound is checked where masks are.
    ragged = kv_len // BLOCK
    cut_until = tl.where(first >= ragged, end, first)
    cut_from = tl.where(first < ragged, ragged, NO_TILE)
    # invariant: (first <= cut_until) & (cut_until <= NO_TILE) & (cut_from <= NO_TILE)
    # invariant: (first < cut_from) | (cut_from == NO_TILE)
    # invariant: (first == NO_TILE) | ((first < cut_until) == cut(unfull, i, first))
    # invariant: implies((first <= t) & (t < cut_until), cut(unfull, i, t))
    # invariant: implies(cut(unfull, i, t) & (first < t) & (cut_until == first), cut_from <= t)
    for i in tl.static_range(len(unfull)):
        c, d = unfull[i]
        cut_until = tl.maximum(cut_until, tl.where((c <= first) & (first < d), d, first))
        cut_from = tl.minimum(cut_from, tl.where((first < c) & (c < d), c, NO_TILE))
    partial = cut_until > first
    return first, tl.minimum(end, tl.where(partial, cut_until, cut_from)), partial


@triton.jit
def _either_way(spans, from_last, count):
    """The same tiles, with from_last 1 numbered from the last of `count`."""
    numbered = ()
    for i in tl.static_range(len(spans)):
        a, b = spans[i]
        first = tl.where(from_last == 1, count - b, a)
        end = tl.where(from_last == 1, count - a, b)
        numbered = numbered + ((first, end),)
    return numbered


@triton.jit
def run_of_spans_either_way(j, from_last, touched, unfull, kv_len, BLOCK: tl.constexpr):
    """As `run_of_spans`; with from_last 1 the last tile has number 0 and the first the highest."""
    count = (kv_len + BLOCK - 1) // BLOCK
    ragged = kv_len // BLOCK
    unfull = _either_way(unfull + ((ragged, count),), from_last, count)
    touched = _either_way(touched, from_last, count)
    return run_of_spans(j, touched, unfull, count * BLOCK, BLOCK)


@triton.jit
def _marked_run(j, marks, row, columns, grain_bits, kv_len, BLOCK: tl.constexpr):
    """The first tile from j on that one row of marks keeps, NO_TILE if none is left; the ends of
    the FULL and of the PARTIAL tiles from there."""
    count = (kv_len + BLOCK - 1) // BLOCK
    start = tl.minimum(j, count) * BLOCK
    column = (start >> grain_bits).to(tl.int32)
    inside = column < columns
    entry = marks + (row * columns + column) * 2
    code = tl.load(entry, mask=inside, other=NO_TILE)
    end = tl.load(entry + 1, mask=inside, other=0)
    low = tl.minimum(code >> 1, columns) << grain_bits
    high = tl.minimum(end << grain_bits, kv_len)
    first = tl.maximum(low, start) // BLOCK
    some = (low < kv_len) & (first < count)
    # A last tile cut by the length is PARTIAL.
    whole = some & (code % 2 == 0) & (low <= first * BLOCK)
    first = tl.where(some, first, NO_TILE).to(tl.int32)
    full = tl.where(whole, high // BLOCK, first).to(tl.int32)
    partial = tl.where(code % 2 == 1, (high + BLOCK - 1) // BLOCK, first + 1)
    return first, full, tl.where(some, partial, NO_TILE).to(tl.int32)


@triton.jit
def _joined(found, full, partial, first, whole, cut):
    """The run of two rows together: a tile is FULL if it is so in both, else PARTIAL."""
    full = tl.where(first == found, tl.minimum(full, whole), tl.minimum(first, found))
    longer = tl.where(first == found, tl.maximum(partial, cut), partial)
    partial = tl.where(first < found, cut, longer)
    return tl.minimum(found, first), full, partial


@triton.jit
def run_of_marks(j, q0, q1, marks, first_row, grain_bits, kv_len, BLOCK: tl.constexpr):
    """As `run_of_spans`, from marks of tiles of `2**grain_bits` positions, int32 `[rows, columns,
    2]`.

    The marks of a column are twice the first column of the run at or after it, plus 1 if that run
    is PARTIAL, and the column past the run.
    """
    row = (first_row + (q0 >> grain_bits)).to(tl.int32)
    last = (first_row + (q1 >> grain_bits)).to(tl.int32)
    columns = (kv_len + (1 << grain_bits) - 1) >> grain_bits
    found, full, partial = _marked_run(j, marks, row, columns, grain_bits, kv_len, BLOCK)
    # Mostly there are two rows: both loads are on their way before one is waited for.
    row = tl.minimum(row + 1, last)
    first, whole, cut = _marked_run(j, marks, row, columns, grain_bits, kv_len, BLOCK)
    found, full, partial = _joined(found, full, partial, first, whole, cut)
    # invariant: (first_row + (q0 >> grain_bits) <= row) & (row <= last)
    # invariant: (j <= found) & (found <= NO_TILE) & (full <= NO_TILE)
    # invariant: (found < partial) | (found == NO_TILE)
    # invariant: (partial == NO_TILE) | (found < NO_TILE) & (partial < NO_TILE)
    # invariant: implies(kept(row) & (j <= t), found <= t)
    # invariant: implies((found <= t) & ((t < full) | (t < partial)), kept(row))
    # invariant: implies((found <= t) & (t < full), ~dropped(row))
    # until: last - row
    while row < last:
        row += 1
        first, whole, cut = _marked_run(j, marks, row, columns, grain_bits, kv_len, BLOCK)
        found, full, partial = _joined(found, full, partial, first, whole, cut)
    masked = full <= found
    return found, tl.where(masked, partial, full), masked & (found < NO_TILE)


@triton.jit
def run_of_marks_either_way(
    j, from_last, q0, q1, marks, first_row, grain_bits, kv_len, BLOCK: tl.constexpr
):
    """As `run_of_marks`, from marks `[rows, 2, columns, 2]` of a multiple of four columns: those
    from the first column, and those from the last. With from_last 1 the last tile has number 0.

    A row of marks has 128 positions, or `2**grain_bits` if these are more; q0..q1 lie in one.
    """
    row = (first_row + (q0 >> tl.maximum(grain_bits, 7))).to(tl.int32) * 2 + from_last
    columns = (kv_len + (4 << grain_bits) - 1) // (4 << grain_bits) * 4
    # From the last column on, tiles of the columns behind the length come first.
    filled = columns << grain_bits
    skipped = from_last * (filled // BLOCK - (kv_len + BLOCK - 1) // BLOCK)
    length = tl.where(from_last == 1, filled, kv_len)
    first, full, cut = _marked_run(j + skipped, marks, row, columns, grain_bits, length, BLOCK)
    partial, none = full <= first, first >= NO_TILE
    end = tl.where(partial, cut, full)
    first = tl.where(none, first, first - skipped)
    return first, tl.where(none, end, end - skipped), partial & (first < NO_TILE)


@triton.jit
def run_of_spans_and_marks(
    j, touched, unfull, q0, q1, marks, first_row, grain_bits, kv_len, BLOCK: tl.constexpr
):
    """The first run that both keep: spans are bounds by themselves, FULL where either says so."""
    first, end, partial = run_of_spans(j, touched, unfull, kv_len, BLOCK)
    found, until, masked = run_of_marks(first, q0, q1, marks, first_row, grain_bits, kv_len, BLOCK)
    # invariant: is_run_of_spans(first, end, partial) & is_run_of_marks(found, until, masked)
    # invariant: (j <= first) & (first <= found)
    # invariant: implies(kept & (j <= t), found <= t)
    # until: NO_TILE - end
    while (found >= end) & (found < NO_TILE):
        first, end, partial = run_of_spans(found, touched, unfull, kv_len, BLOCK)
        found, until, masked = run_of_marks(
            first, q0, q1, marks, first_row, grain_bits, kv_len, BLOCK
        )
    none = (found >= NO_TILE) | (first >= NO_TILE)
    found = tl.where(none, NO_TILE, found).to(tl.int32)
    end = tl.where(none, NO_TILE, tl.minimum(end, until)).to(tl.int32)
    return found, end, partial & masked & (found < NO_TILE)
