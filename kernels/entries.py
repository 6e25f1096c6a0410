"""Gradients of what a bias reads: slopes, tables of distances, biases of keys or of pairs.

With e = dL / d(biased score) * d(biased score) / d(entry) of each kept pair, one program adds up e
over the keys of a tile of queries (ROWS), or adds it to an entry for each key (COLUMNS), each
distance q - k (DISTANCES) or each place of the table (PAIRS). Sums that several programs share are
kept in 64-bit fixed point, so that they do not depend on who comes first.
"""

import triton
import triton.language as tl

from .backward import tile_of, weight_gradient, weights
from .forward import SCALARS, head_of, load_tile, tile_of_program
from .runs import NO_TILE

ROWS = tl.constexpr("rows")
COLUMNS = tl.constexpr("columns")
DISTANCES = tl.constexpr("distances")
PAIRS = tl.constexpr("pairs")
LARGEST = tl.constexpr("largest")


@triton.jit
def _visit(
    total,
    query,
    gradient,
    statistic,
    delta,
    keys,
    values,
    first,
    end,
    sums,
    place,
    S,
    T,
    unit_of_scores,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    ENTRY: tl.constexpr,
    PLACE: tl.constexpr,
    MODE: tl.constexpr,
    PARTIAL,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    TMA: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Tiles first <= j < end of keys, PARTIAL or not; `total` is a number for each query."""
    batch, head, q_idx, q_len, kv_len, batch_head, zero = place
    sums_ptr, unit = sums
    columns = tl.arange(0, BLOCK_N)
    for j in tl.range(first, end):
        n = j * BLOCK_N + columns
        key = load_tile(keys, j * BLOCK_N, n, kv_len, TMA, True, HEAD_DIM, HEAD_PAD)
        value = load_tile(values, j * BLOCK_N, n, kv_len, TMA, True, VALUE_DIM, VALUE_PAD)
        kv_idx = (n + zero)[None, :]
        at = (batch, head, q_idx, kv_idx, kv_len)
        product = tl.dot(query, key.T, input_precision=PRECISION)
        each = statistic[:, None]
        p = weights(product, each, at, S, T, unit_of_scores, MASKED, BIASED, PARTIAL, WEIGHTED)
        dp = tl.dot(gradient, value.T, input_precision=PRECISION)
        e = weight_gradient(p, dp, delta[:, None], each, at, S, T, MASKED, PARTIAL, WEIGHTED)
        if ENTRY is not None:
            # A dropped pair adds nothing, however steep the bias is there.
            change = ENTRY(product, batch, head, q_idx, kv_idx, kv_len, S, T)
            e = tl.where(e == 0.0, 0.0, e * change)
        if MODE == ROWS:
            total += tl.sum(e, 1)
        elif MODE == LARGEST:
            total = tl.maximum(total, tl.max(tl.abs(e), 1))
        elif MODE == COLUMNS:
            sums_at = sums_ptr + batch_head.to(tl.int64) * kv_len + n
            tl.atomic_add(
                sums_at, (tl.sum(e, 0) * unit).to(tl.int64), mask=n < kv_len, sem="relaxed"
            )
        else:
            if MODE == DISTANCES:
                distance = q_idx - kv_idx + (kv_len - 1)
                entry = batch_head.to(tl.int64) * (q_len + kv_len - 1) + distance
            else:
                entry = PLACE(e, batch, head, q_idx, kv_idx, kv_len, S, T)
            # Dropped pairs add nothing, and rows past the end have no place.
            some = (e != 0.0) & (q_idx < q_len) & (kv_idx < kv_len)
            entry = tl.broadcast_to(entry.to(tl.int64), e.shape)
            tl.atomic_add(sums_ptr + entry, (e * unit).to(tl.int64), mask=some, sem="relaxed")
    return total


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
    """The part of one tile of queries in the gradient of one reading of a table.

    `sums` is float32 `[batch, heads, q_len]` for ROWS and LARGEST (the largest |e| of a query);
    int64, in units of 1 / `unit`, of `[batch, heads, kv_len]` for COLUMNS, of `[batch, heads,
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
    if TMA:
        keys = (k_ptr, batch, kv_head)
        values = (v_ptr, batch, kv_head)
    else:
        k_base = head_of(k_ptr, batch, kv_head, stride_kb, stride_kh)
        v_base = head_of(v_ptr, batch, kv_head, stride_vb, stride_vh)
        keys = (k_base, stride_kn, stride_kd)
        values = (v_base, stride_vn, stride_vd)

    m = q0 + tl.arange(0, BLOCK_M)
    q_base = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    g_base = head_of(g_ptr, batch, head, stride_gb, stride_gh)
    query = tile_of(q_base, m, q_len, stride_qm, stride_qd, HEAD_DIM, HEAD_PAD)
    gradient = tile_of(g_base, m, q_len, stride_gm, stride_gd, VALUE_DIM, VALUE_PAD)
    base = batch_head.to(tl.int64) * q_len
    known = batch_head.to(tl.int64) * padded + m
    statistic, delta = tl.load(statistic_ptr + known), tl.load(delta_ptr + known)

    unit = 1.0
    if unit_ptr is not None:
        unit = tl.load(unit_ptr)
    total = tl.zeros((BLOCK_M,), tl.float32)
    q_idx = (m + zero)[:, None]
    place = (batch, head, q_idx, q_len, kv_len, batch_head, zero)
    T, unit_of_scores = HOLD(batch, head, q_idx, kv_len, scale, S, T)
    sums = (sums_ptr, unit)
    j = tl.zeros((), tl.int32)
    while j < NO_TILE:
        first, end, partial = NEXT_RUN(j, q0 + zero, q1 + zero, batch, head, kv_len, S, T, BLOCK_N)
        total = _visit(
            total, query, gradient, statistic, delta, keys, values, first, end, sums, place,
            S, T, unit_of_scores, MASKED, BIASED, ENTRY, PLACE, MODE, partial, BLOCK_N,
            HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
        )  # fmt: skip
        j = end
    if MODE == ROWS or MODE == LARGEST:
        tl.store(sums_ptr + base + m, total, mask=m < q_len)
