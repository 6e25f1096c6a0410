"""Gradients of the tensors of a bias: slopes, tables of distances, biases of keys or of pairs.

With e = dL / d(biased score) * d(biased score) / d(entry) of each kept pair, one program adds up e
over the keys of a tile of queries (ROWS, for several entries at once), or adds it to an entry for
each key (COLUMNS), each distance q - k (DISTANCES) or each place of the table (PAIRS). Sums that
several programs share are kept in 64-bit fixed point, so that they do not depend on the order of
programs.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .backward import Queries
from .elements import SCALARS, Hooks, Place, at_keys, weight_gradient, weights
from .forward import Tile, head_of, load_tile, source_of, tile_of, tile_of_program
from .runs import Span, over_runs

ROWS = tl.constexpr("rows")
COLUMNS = tl.constexpr("columns")
DISTANCES = tl.constexpr("distances")
PAIRS = tl.constexpr("pairs")
LARGEST = tl.constexpr("largest")
PRODUCTS = tl.constexpr("products")


class Entries(NamedTuple):
    """A tile of queries, and the sums that its elements add to, in units of 1 / `unit`."""

    queries: Queries
    sums_ptr: tl.tensor
    unit: tl.tensor
    batch_head: tl.tensor
    q_len: tl.tensor
    ENTRY: tl.constexpr
    PLACE: tl.constexpr
    MODE: tl.constexpr


@triton.jit
def _changed(e, changes, i: tl.constexpr):
    """e times the derivative of the bias by entry i; e alone if that is 1."""
    # A dropped pair adds nothing, however steep the bias is there.
    return e if changes is None else tl.where(e == 0.0, 0.0, e * changes[i])


@triton.jit
def _shared(totals, e, at, n, of):
    """`totals` after adding gradients to sums that programs share, or with the largest gradient."""
    kv_len = at.kv_len
    if of.MODE == LARGEST:
        totals = (tl.maximum(totals[0], tl.max(tl.abs(e), 1)),)
    elif of.MODE == COLUMNS:
        entry = of.batch_head.to(tl.int64) * kv_len + n
        change = (tl.sum(e, 0) * of.unit).to(tl.int64)
        tl.atomic_add(of.sums_ptr + entry, change, mask=n < kv_len, sem="relaxed")
    else:
        if of.MODE == DISTANCES:
            distance = at.q_idx - at.kv_idx + (kv_len - 1)
            entry = of.batch_head.to(tl.int64) * (of.q_len + kv_len - 1) + distance
        else:
            tl.static_assert(of.MODE == PAIRS)
            entry = of.PLACE(e, *at)
        # Dropped pairs add nothing, and rows past the end have no place.
        some = (e != 0.0) & (at.q_idx < of.q_len) & (at.kv_idx < kv_len)
        entry = tl.broadcast_to(entry.to(tl.int64), e.shape)
        change = (e * of.unit).to(tl.int64)
        tl.atomic_add(of.sums_ptr + entry, change, mask=some, sem="relaxed")
    return totals


@triton.jit
def _visit(totals, of, place, first, end, hooks, tile, PARTIAL, RAGGED: tl.constexpr):
    """Tiles first <= j < end of keys; `totals` are numbers for each query."""
    q, kv_len, columns = of.queries, place.kv_len, tl.arange(0, tile.BLOCK)
    for j in tl.range(first, end):
        n = j * tile.BLOCK + columns
        key = load_tile(q.key_source, j, kv_len, tile.HEAD_DIM, tile.HEAD_PAD, tile, RAGGED)
        value = load_tile(q.value_source, j, kv_len, tile.VALUE_DIM, tile.VALUE_PAD, tile, RAGGED)
        at = at_keys(place, n)
        product = tl.dot(q.query, key.T, input_precision=tile.PRECISION)
        statistic, delta = q.statistic[:, None], q.delta[:, None]
        p = weights(product, statistic, at, q.unit, hooks, PARTIAL)
        dp = tl.dot(q.gradient, value.T, input_precision=tile.PRECISION)
        e = weight_gradient(p, dp, delta, statistic, at, hooks, PARTIAL)
        changes = None
        if of.MODE == PRODUCTS:
            e = tl.where(p == 0.0, 0.0, p * dp)
        elif of.ENTRY is not None:
            changes = of.ENTRY(product, *at)
        if of.MODE == ROWS or of.MODE == PRODUCTS:
            found = ()
            for i in tl.static_range(len(totals)):
                found = found + (totals[i] + tl.sum(_changed(e, changes, i), 1),)
            totals = found
        else:
            totals = _shared(totals, _changed(e, changes, 0), at, n, of)
    return totals


@triton.jit(do_not_specialize=["q_len", "kv_len", "padded", "rows", "batch_heads", *SCALARS])
def backward_entries(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    statistic_ptr,
    delta_ptr,
    sums_ptr,
    unit_ptr,
    T,
    scale,
    q_len,
    kv_len,
    padded,
    rows,
    batch_heads,
    heads,
    group,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_gb, stride_gh, stride_gm, stride_gd,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    HOLD: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    NEXT_RUN: tl.constexpr,
    ENTRY: tl.constexpr,
    PLACE: tl.constexpr,
    MODE: tl.constexpr,
    READS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEADS_TOGETHER: tl.constexpr,
    WIDE: tl.constexpr,
    TMA: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """The part of one tile of queries in the gradients of READS readings of tables.

    `sums` is float32 `[READS, batch, heads, q_len]` for ROWS, `[batch, heads, q_len]` for LARGEST
    (the largest |e| of a query) and PRODUCTS (dO . O of a query, from weights and dO . v instead of
    O); int64, in units of 1 / `unit`, of `[batch, heads, kv_len]` for COLUMNS, of `[batch, heads,
    q_len + kv_len - 1]` by q - k + kv_len - 1 for DISTANCES, of the table's shape for PAIRS.
    Other arguments as of `backward_queries`.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    row, batch_head = tile_of_program(tl.program_id(0), rows, batch_heads, HEADS_TOGETHER)
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    q0 = row * BLOCK_M
    q1 = tl.minimum(q0 + BLOCK_M, q_len) - 1
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    of_keys = (stride_kb, stride_kh, stride_kn, stride_kd)
    of_values = (stride_vb, stride_vh, stride_vn, stride_vd)
    keys = source_of(k_ptr, batch, kv_head, of_keys, TMA)
    values = source_of(v_ptr, batch, kv_head, of_values, TMA)

    m = q0 + tl.arange(0, BLOCK_M)
    q_base = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    g_base = head_of(g_ptr, batch, head, stride_gb, stride_gh)
    query = tile_of(q_base, m, q_len, stride_qm, stride_qd, HEAD_DIM, HEAD_PAD)
    gradient = tile_of(g_base, m, q_len, stride_gm, stride_gd, VALUE_DIM, VALUE_PAD)
    base = batch_head.to(tl.int64) * q_len
    known = batch_head.to(tl.int64) * padded + m
    statistic, delta = tl.load(statistic_ptr + known), tl.load(delta_ptr + known)

    unit_of_sums = 1.0
    if unit_ptr is not None:
        unit_of_sums = tl.load(unit_ptr)
    q_idx = (m + zero)[:, None]
    T, unit = HOLD(batch, head, q_idx, kv_len, scale, S, T)
    totals = ()
    for _ in tl.static_range(READS):
        totals = totals + (tl.zeros((BLOCK_M,), tl.float32),)
    totals = over_runs(
        _visit,
        totals,
        Entries(
            Queries(query, gradient, statistic, delta, keys, values, unit),
            sums_ptr, unit_of_sums, batch_head, q_len, ENTRY, PLACE, MODE,
        ),
        Place(batch, head, q_idx, zero, kv_len, S, T),
        Span(q0 + zero, q1 + zero, batch, head, kv_len, S, T),
        Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
        Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, 0),
        True,
    )  # fmt: skip
    if MODE == ROWS or MODE == LARGEST or MODE == PRODUCTS:
        for i in tl.static_range(READS):
            of_read = sums_ptr + i * batch_heads.to(tl.int64) * q_len + base
            tl.store(of_read + m, totals[i], mask=m < q_len)
