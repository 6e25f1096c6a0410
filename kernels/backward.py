"""Backward attention for the softmax: one kernel for dQ, one for dK and dV.

With s the biased score, p = exp(s - lse) and delta = sum(dO * O) - dlse of a query,

    dV = p^T dO        ds = p * (dO V^T - delta) * f'(score)        dQ = ds K        dK = ds^T Q

The first kernel walks the runs of tiles of keys of a tile of queries, as forward does; the second
walks the runs of tiles of queries of a tile of keys, from the closed forms with the roles of
queries and keys exchanged. No atomics: the result is the same to the bit every time.

WEIGHTED, the biased score w is the weight itself, and 1 / z (z the sum of weights, or 1) stands in
the place of the lse:

    dV = w^T dO / z    ds = w' / z * (dO V^T - delta)
"""

import triton
import triton.language as tl

from .forward import (
    LOG2E,
    SCALARS,
    biased,
    head_of,
    kept,
    load_tile,
    tile_of_program,
    weight_of,
)
from .runs import NO_TILE

PADDED_BLOCK = tl.constexpr(256)
"""What is kept of queries is as long as a multiple of this, which is one of every tile."""


@triton.jit
def weights(
    product,
    statistic,
    place,
    S,
    T,
    unit,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    PARTIAL,
    WEIGHTED: tl.constexpr,
):
    """Weights of a tile from q . k: exp(s - lse) with the lse in units of log 2, or w / z."""
    batch, head, q_idx, kv_idx, kv_len = place
    if WEIGHTED:
        p = weight_of(product, place, S, T, unit, MASKED, BIASED, PARTIAL) * statistic
    else:
        score = biased(product, place, S, T, BIASED)
        if PARTIAL:
            score = MASKED(score, batch, head, q_idx, kv_idx, kv_len, S, T)
        p = tl.math.exp2(score * (unit * LOG2E) - statistic)
    return p


@triton.jit
def weight_gradient(
    p,
    dp,
    delta,
    statistic,
    place,
    S,
    T,
    MASKED: tl.constexpr,
    PARTIAL,
    WEIGHTED: tl.constexpr,
):
    """The gradient of the biased score."""
    if WEIGHTED:
        ds = (dp - delta) * statistic
        if PARTIAL:
            ds = tl.where(kept(ds, place, S, T, MASKED), ds, 0.0)
    else:
        ds = p * (dp - delta)
    return ds


@triton.jit
def slope_of(product, place, S, T, SLOPE: tl.constexpr):
    """What a change of the score changes the biased score by."""
    slope = 1.0
    if SLOPE is not None:
        batch, head, q_idx, kv_idx, kv_len = place
        slope = SLOPE(product, batch, head, q_idx, kv_idx, kv_len, S, T)
    return slope


@triton.jit
def weights_and_slopes(
    product,
    statistic,
    place,
    S,
    T,
    unit,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    SLOPE: tl.constexpr,
    PARTIAL,
):
    """w / z and w' / z of a tile, both 0 where a pair is dropped; z is 1 without a `statistic`.

    What `weights`, `weight_gradient` and `slope_of` give WEIGHTED, with one look at the mask, in
    fewer registers.
    """
    batch, head, q_idx, kv_idx, kv_len = place
    w = biased(product, place, S, T, BIASED) * unit
    slope = tl.where(product == product, 1.0, 1.0)
    if SLOPE is not None:
        slope = SLOPE(product, batch, head, q_idx, kv_idx, kv_len, S, T)
    if statistic is not None:
        w = w * statistic
        slope = slope * statistic
    if PARTIAL:
        keep = kept(product, place, S, T, MASKED)
        w = tl.where(keep, w, 0.0)
        slope = tl.where(keep, slope, 0.0)
    return w, slope


@triton.jit
def statistics_of(
    product,
    lse_ptr,
    sink_ptr,
    grad_lse_ptr,
    head,
    base,
    m,
    q_len,
    WEIGHTED: tl.constexpr,
):
    """lse and the sink in units of log 2 (or 1 / z), and delta, of queries m of `product` = dO . O.

    Past the length, and for a query that keeps nothing, weights become 0. Without an lse z is 1.
    """
    inside = m < q_len
    delta = product
    if lse_ptr is None:
        statistic = tl.where(inside, 1.0, 0.0)
        delta = tl.where(inside, 0.0, 0.0)
    elif WEIGHTED:
        z = tl.load(lse_ptr + base + m, mask=inside, other=0.0)
        statistic = tl.where(z == 0.0, 0.0, 1.0 / tl.where(z == 0.0, 1.0, z))
    else:
        lse = tl.load(lse_ptr + base + m, mask=inside, other=float("-inf")) * LOG2E
        empty = lse == float("-inf")
        statistic = lse
        if sink_ptr is not None:
            sink = tl.load(sink_ptr + head).to(tl.float32) * LOG2E
            larger = tl.maximum(lse, sink)
            ratio = tl.math.exp2(tl.minimum(lse, sink) - larger)
            statistic = larger + tl.math.log2(1.0 + ratio)
        if grad_lse_ptr is not None:
            # d lse / d s is exp(s - lse), which is the weight times exp2(statistic - lse).
            change = tl.load(grad_lse_ptr + base + m, mask=inside, other=0.0)
            if sink_ptr is not None:
                ratio = change * tl.math.exp2(statistic - lse)
                change = tl.where(change == 0.0, 0.0, ratio)
                # Beyond what float32 holds, weights are 0 too, and what it should be is not known.
                change += change - change
            delta -= tl.where(empty, 0.0, change)
        statistic = tl.where(empty, float("inf"), statistic)
    return statistic, delta


@triton.jit
def store_statistics(statistic, delta, targets, place, m, padded):
    """Keep for the other kernels what queries m are known by."""
    statistic_ptr, delta_ptr = targets
    tl.store(statistic_ptr + place + m, statistic, mask=m < padded)
    tl.store(delta_ptr + place + m, delta, mask=m < padded)


@triton.jit
def store_nothing(targets, place, m, padded, WEIGHTED: tl.constexpr):
    """Queries m, all past the length, get weights of 0."""
    statistic = tl.where(m < 0, 0.0, 0.0 if WEIGHTED else float("inf"))
    store_statistics(statistic, tl.where(m < 0, 0.0, 0.0), targets, place, m, padded)


@triton.jit
def _visit_keys(
    dq,
    query,
    gradient,
    statistic,
    delta,
    keys,
    values,
    first,
    end,
    place,
    S,
    T,
    unit,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    SLOPE: tl.constexpr,
    PARTIAL,
    RAGGED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    TMA: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Tiles first <= j < end of keys, added to dq of the tile of queries."""
    batch, head, q_idx, kv_len, zero = place
    columns = tl.arange(0, BLOCK_N)
    for j in tl.range(first, end):
        n = j * BLOCK_N + columns
        key = load_tile(keys, j * BLOCK_N, n, kv_len, TMA, RAGGED, HEAD_DIM, HEAD_PAD)
        value = load_tile(values, j * BLOCK_N, n, kv_len, TMA, RAGGED, VALUE_DIM, VALUE_PAD)
        at = (batch, head, q_idx, (n + zero)[None, :], kv_len)
        product = tl.dot(query, key.T, input_precision=PRECISION)
        each = statistic[:, None]
        if WEIGHTED:
            _p, slope = weights_and_slopes(
                product, each, at, S, T, unit, MASKED, BIASED, SLOPE, PARTIAL
            )
        else:
            p = weights(product, each, at, S, T, unit, MASKED, BIASED, PARTIAL, False)
        dp = tl.dot(gradient, value.T, input_precision=PRECISION)
        if WEIGHTED:
            ds = (dp - delta[:, None]) * slope
        else:
            ds = weight_gradient(p, dp, delta[:, None], each, at, S, T, MASKED, PARTIAL, False)
            ds = ds * slope_of(product, at, S, T, SLOPE)
        dq = tl.dot(ds.to(key.dtype), key, dq, input_precision=PRECISION)
    return dq


@triton.jit
def _visit_queries(
    state,
    key,
    value,
    queries,
    gradients,
    statistics,
    first,
    end,
    place,
    S,
    T,
    unit,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    SLOPE: tl.constexpr,
    PARTIAL,
    RAGGED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    TMA: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Tiles first <= i < end of queries, added to dk and dv of the tile of keys."""
    dk, dv = state
    batch, head, kv_idx, q_len, kv_len, zero = place
    statistic_ptr, delta_ptr = statistics
    rows = tl.arange(0, BLOCK_M)
    for i in tl.range(first, end):
        m = i * BLOCK_M + rows
        query = load_tile(queries, i * BLOCK_M, m, q_len, TMA, RAGGED, HEAD_DIM, HEAD_PAD)
        gradient = load_tile(gradients, i * BLOCK_M, m, q_len, TMA, RAGGED, VALUE_DIM, VALUE_PAD)
        statistic, delta = tl.load(statistic_ptr + m), tl.load(delta_ptr + m)
        at = (batch, head, (m + zero)[None, :], kv_idx, kv_len)
        product = tl.dot(key, query.T, input_precision=PRECISION)
        each = statistic[None, :]
        if WEIGHTED:
            p, slope = weights_and_slopes(
                product, each, at, S, T, unit, MASKED, BIASED, SLOPE, PARTIAL
            )
        else:
            p = weights(product, each, at, S, T, unit, MASKED, BIASED, PARTIAL, False)
        dv = tl.dot(p.to(gradient.dtype), gradient, dv, input_precision=PRECISION)
        dp = tl.dot(value, gradient.T, input_precision=PRECISION)
        if WEIGHTED:
            ds = (dp - delta[None, :]) * slope
        else:
            ds = weight_gradient(p, dp, delta[None, :], each, at, S, T, MASKED, PARTIAL, False)
            ds = ds * slope_of(product, at, S, T, SLOPE)
        dk = tl.dot(ds.to(query.dtype), query, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit
def tile_of(ptr, rows, length, stride_n, stride_d, SIZE: tl.constexpr, PAD: tl.constexpr):
    """Rows of one head, zero past the length and past SIZE."""
    d = tl.arange(0, PAD)
    at = ptr + rows.to(tl.int64)[:, None] * stride_n + d[None, :] * stride_d
    return tl.load(at, mask=(rows < length)[:, None] & (d < SIZE)[None, :], other=0.0)


@triton.jit
def first_row(batch, head, heads, length, head_step):
    """Where the rows of a head begin in a dense tensor, in rows."""
    return batch.to(tl.int64) * heads * length + head.to(tl.int64) * head_step


@triton.jit
def _store(ptr, first, rows, length, row_step, tile, SIZE: tl.constexpr, PAD: tl.constexpr):
    """Rows of one head of a dense result."""
    d = tl.arange(0, PAD)
    at = ptr + (first + rows.to(tl.int64) * row_step)[:, None] * SIZE + d[None, :]
    inside = (rows < length)[:, None] & (d < SIZE)[None, :]
    tl.store(at, tile.to(ptr.dtype.element_ty), mask=inside)


@triton.jit(
    do_not_specialize=[
        "q_len", "kv_len", "padded", "rows", "batch_heads", "head_step", "row_step", *SCALARS,
    ]
)  # fmt: skip
def backward_queries(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    grad_lse_ptr,
    statistic_ptr,
    delta_ptr,
    dq_ptr,
    T,
    scale,
    q_len,
    kv_len,
    padded,
    rows,
    batch_heads,
    heads,
    group,
    head_step,
    row_step,
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
    SLOPE: tl.constexpr,
    NEXT_RUN: tl.constexpr,
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
    ONE_LOOP: tl.constexpr,
):  # fmt: skip
    """dQ of one tile of queries; k and v are tensor descriptors under TMA, g is dO.

    o and dq are dense, of heads or tokens: `head_step` rows of them from a head to the next,
    `row_step` from a query to the next. lse and its gradient, float32 `[batch, heads, q_len]`, are
    contiguous; `sink_ptr` as of `forward`. Weights that are not normalised have neither o nor lse.
    statistic and delta, what the other kernels need of each query, are written to as many places a
    head as `padded`, a multiple of PADDED_BLOCK.
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
    product = tl.zeros((BLOCK_M,), tl.float32)
    if o_ptr is not None:
        o_base = o_ptr + first_row(batch, head, heads, q_len, head_step) * VALUE_DIM
        out = tile_of(o_base, m, q_len, row_step * VALUE_DIM, 1, VALUE_DIM, VALUE_PAD)
        product = tl.sum(out.to(tl.float32) * gradient.to(tl.float32), 1)
    statistic, delta = statistics_of(
        product, lse_ptr, sink_ptr, grad_lse_ptr, head, base, m, q_len, WEIGHTED
    )
    targets = (statistic_ptr, delta_ptr)
    at = batch_head.to(tl.int64) * padded
    store_statistics(statistic, delta, targets, at, m, padded)
    if row == rows - 1:
        past = q0 + BLOCK_M + tl.arange(0, PADDED_BLOCK)
        store_nothing(targets, at, past, padded, WEIGHTED)

    dq = tl.zeros((BLOCK_M, HEAD_PAD), tl.float32)
    q_idx = (m + zero)[:, None]
    place = (batch, head, q_idx, kv_len, zero)
    T, unit = HOLD(batch, head, q_idx, kv_len, scale, S, T)
    j = tl.zeros((), tl.int32)
    while j < NO_TILE:
        first, end, partial = NEXT_RUN(j, q0 + zero, q1 + zero, batch, head, kv_len, S, T, BLOCK_N)
        if ONE_LOOP:
            dq = _visit_keys(
                dq, query, gradient, statistic, delta, keys, values, first, end, place, S, T, unit,
                MASKED, BIASED, SLOPE, partial, True, BLOCK_N,
                HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
            )  # fmt: skip
        else:
            last_full = tl.where(partial, first, end)
            dq = _visit_keys(
                dq, query, gradient, statistic, delta, keys, values, first, last_full, place, S, T,
                unit, MASKED, BIASED, SLOPE, False, False, BLOCK_N,
                HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
            )  # fmt: skip
            dq = _visit_keys(
                dq, query, gradient, statistic, delta, keys, values, last_full, end, place, S, T,
                unit, MASKED, BIASED, SLOPE, True, True, BLOCK_N,
                HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
            )  # fmt: skip
        j = end
    begin = first_row(batch, head, heads, q_len, head_step)
    _store(dq_ptr, begin, m, q_len, row_step, dq * scale, HEAD_DIM, HEAD_PAD)


@triton.jit(
    do_not_specialize=[
        "q_len", "kv_len", "padded", "rows", "batch_heads", "head_step", "row_step", *SCALARS,
    ]
)  # fmt: skip
def backward_keys(
    q_ptr,
    k_ptr,
    v_ptr,
    g_ptr,
    statistic_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    T,
    scale,
    q_len,
    kv_len,
    padded,
    rows,
    batch_heads,
    kv_heads,
    group,
    head_step,
    row_step,
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
    SLOPE: tl.constexpr,
    NEXT_RUN: tl.constexpr,
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
    ONE_LOOP: tl.constexpr,
):  # fmt: skip
    """dK and dV of one tile of keys of one key-value head; q and g are descriptors under TMA.

    The query heads of a group are visited one after the other, so nothing is added up later.
    `head_step` and `row_step` as of `backward_queries`, for dk and dv.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    row, batch_head = tile_of_program(tl.program_id(0), rows, batch_heads, HEADS_TOGETHER)
    # The first keys are the longest under every causal mask.
    row = rows - 1 - row
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    k0 = row * BLOCK_N
    k1 = tl.minimum(k0 + BLOCK_N, kv_len) - 1
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    n = k0 + tl.arange(0, BLOCK_N)
    k_base = head_of(k_ptr, batch, kv_head, stride_kb, stride_kh)
    v_base = head_of(v_ptr, batch, kv_head, stride_vb, stride_vh)
    key = tile_of(k_base, n, kv_len, stride_kn, stride_kd, HEAD_DIM, HEAD_PAD)
    value = tile_of(v_base, n, kv_len, stride_vn, stride_vd, VALUE_DIM, VALUE_PAD)

    dk = tl.zeros((BLOCK_N, HEAD_PAD), tl.float32)
    dv = tl.zeros((BLOCK_N, VALUE_PAD), tl.float32)
    state = (dk, dv)
    for g in tl.range(0, group):
        head = kv_head * group + g
        if TMA:
            queries = (q_ptr, batch, head)
            gradients = (g_ptr, batch, head)
        else:
            q_base = head_of(q_ptr, batch, head, stride_qb, stride_qh)
            g_base = head_of(g_ptr, batch, head, stride_gb, stride_gh)
            queries = (q_base, stride_qm, stride_qd)
            gradients = (g_base, stride_gm, stride_gd)
        base = (batch * kv_heads * group + head).to(tl.int64) * padded
        statistics = (statistic_ptr + base, delta_ptr + base)
        kv_idx = (n + zero)[:, None]
        place = (batch, head, kv_idx, q_len, kv_len, zero)
        held, unit = HOLD(batch, head, kv_idx, kv_len, scale, S, T)
        i = tl.zeros((), tl.int32)
        while i < NO_TILE:
            first, end, partial = NEXT_RUN(
                i, k0 + zero, k1 + zero, batch, head, q_len, S, T, BLOCK_M
            )
            if ONE_LOOP:
                state = _visit_queries(
                    state, key, value, queries, gradients, statistics, first, end, place, S,
                    held, unit, MASKED, BIASED, SLOPE, partial, True, BLOCK_M,
                    HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
                )  # fmt: skip
            else:
                last_full = tl.where(partial, first, end)
                state = _visit_queries(
                    state, key, value, queries, gradients, statistics, first, last_full, place, S,
                    held, unit, MASKED, BIASED, SLOPE, False, False, BLOCK_M,
                    HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
                )  # fmt: skip
                state = _visit_queries(
                    state, key, value, queries, gradients, statistics, last_full, end, place, S,
                    held, unit, MASKED, BIASED, SLOPE, True, True, BLOCK_M,
                    HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, WEIGHTED,
                )  # fmt: skip
            i = end
    dk, dv = state
    begin = first_row(batch, kv_head, kv_heads, kv_len, head_step)
    _store(dk_ptr, begin, n, kv_len, row_step, dk * scale, HEAD_DIM, HEAD_PAD)
    _store(dv_ptr, begin, n, kv_len, row_step, dv, VALUE_DIM, VALUE_PAD)
