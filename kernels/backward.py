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

from typing import NamedTuple

import triton
import triton.language as tl

from .documents import keys_left, moved, row_of_tiles
from .elements import (
    LOG2E,
    SCALARS,
    Hooks,
    Place,
    at_keys,
    at_queries,
    score_gradient,
    weights_of_gradient,
)
from .finite import SPOILED
from .forward import Tile, head_of, load_tile, source_of, tile_of, tile_of_program
from .runs import Span, over_runs

PADDED_BLOCK = tl.constexpr(256)
"""Statistics of queries are padded to a multiple of this, a multiple of every tile."""


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
    """statistic and delta of queries m, whose dO . O is `product`.

    statistic is the lse, sink included, in units of log 2; WEIGHTED it is 1 / z. Past the length,
    and for a query that keeps nothing, weights become 0. Without an lse z is 1.
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
        lse = tl.load(lse_ptr + base + m, mask=inside, other=float("-inf"))
        spoiled = lse == SPOILED
        lse *= LOG2E
        empty = lse == float("-inf")
        statistic = lse
        if sink_ptr is not None:
            sink = tl.load(sink_ptr + head).to(tl.float32) * LOG2E
            larger = tl.maximum(lse, sink)
            ratio = tl.math.exp2(tl.minimum(lse, sink) - larger)
            both = larger + tl.math.log2(1.0 + ratio)
            statistic = tl.where(spoiled, lse, both)
        if grad_lse_ptr is not None:
            # d lse / d s is exp(s - lse), which is the weight times exp2(statistic - lse).
            change = tl.load(grad_lse_ptr + base + m, mask=inside, other=0.0)
            if sink_ptr is not None:
                ratio = change * tl.math.exp2(statistic - lse)
                change = tl.where(change == 0.0, 0.0, ratio)
                # Past the range of float32 the weights are 0 too, and the change is unknown: NaN.
                change += change - change
            delta -= tl.where(empty, 0.0, change)
        statistic = tl.where(empty, float("inf"), statistic)
    return statistic, delta


@triton.jit
def store_statistics(statistic, delta, targets, place, m, padded):
    """Store the statistics of queries m for the other kernels."""
    statistic_ptr, delta_ptr = targets
    tl.store(statistic_ptr + place + m, statistic, mask=m < padded)
    tl.store(delta_ptr + place + m, delta, mask=m < padded)


@triton.jit
def store_nothing(targets, place, m, padded, WEIGHTED: tl.constexpr):
    """Store statistics that give queries m, all past the length, weights of 0."""
    statistic = tl.where(m < 0, 0.0, 0.0 if WEIGHTED else float("inf"))
    store_statistics(statistic, tl.where(m < 0, 0.0, 0.0), targets, place, m, padded)


class Queries(NamedTuple):
    """A tile of queries with their statistics, and the keys and values of its head."""

    query: tl.tensor
    gradient: tl.tensor
    statistic: tl.tensor
    delta: tl.tensor
    key_source: tl.tuple
    value_source: tl.tuple
    unit: tl.tensor


@triton.jit
def _visit_keys(dq, of, place, first, end, hooks, tile, PARTIAL, RAGGED: tl.constexpr):
    """Tiles first <= j < end of keys, added to dq of the tile of queries."""
    kv_len, columns = keys_left(place), tl.arange(0, tile.BLOCK)
    for j in tl.range(first, end):
        n = j * tile.BLOCK + columns
        key = load_tile(of.key_source, j, kv_len, tile.HEAD_DIM, tile.HEAD_PAD, tile, RAGGED)
        value = load_tile(of.value_source, j, kv_len, tile.VALUE_DIM, tile.VALUE_PAD, tile, RAGGED)
        at = at_keys(place, n)
        product = tl.dot(of.query, key.T, input_precision=tile.PRECISION)
        statistic, delta = of.statistic[:, None], of.delta[:, None]
        p, slope = weights_of_gradient(product, statistic, at, of.unit, hooks, PARTIAL)
        dp = tl.dot(of.gradient, value.T, input_precision=tile.PRECISION)
        ds = score_gradient(product, p, slope, dp, delta, statistic, at, hooks, PARTIAL)
        dq = tl.dot(ds.to(key.dtype), key, dq, input_precision=tile.PRECISION)
    return dq


class Keys(NamedTuple):
    """A tile of keys and values, and the queries of a head with their statistics.

    ALIGNED: queries of other documents follow these, and their statistics are not read.
    """

    key: tl.tensor
    value: tl.tensor
    queries: tl.tuple
    gradients: tl.tuple
    statistic_ptr: tl.tensor
    delta_ptr: tl.tensor
    q_len: tl.tensor
    unit: tl.tensor
    ALIGNED: tl.constexpr
    ONE_LOOP: tl.constexpr


@triton.jit
def _products(held, moving, tile, PAD: tl.constexpr, ONE_LOOP: tl.constexpr):
    """held . moving of each pair of rows, of PAD dimensions.

    Wide float32 rows in ONE_LOOP take the transposed product, which transposes `held` once, before
    the loop. Transposing `moving` would take registers for all of it at once, and with some masks
    spill 400 bytes a thread; untransposed, it is read from shared memory while it is multiplied.
    """
    if tile.PRECISION == "tf32x3" and PAD > 128 and ONE_LOOP:
        return tl.dot(moving, held.T, input_precision=tile.PRECISION).T
    else:
        return tl.dot(held, moving.T, input_precision=tile.PRECISION)


@triton.jit
def _visit_queries(state, of, place, first, end, hooks, tile, PARTIAL, RAGGED: tl.constexpr):
    """Tiles first <= i < end of queries, added to dk and dv of the tile of keys."""
    dk, dv = state
    q_len, rows = of.q_len, tl.arange(0, tile.BLOCK)
    for i in tl.range(first, end):
        m = i * tile.BLOCK + rows
        query = load_tile(of.queries, i, q_len, tile.HEAD_DIM, tile.HEAD_PAD, tile, RAGGED)
        gradient = load_tile(of.gradients, i, q_len, tile.VALUE_DIM, tile.VALUE_PAD, tile, RAGGED)
        if of.ALIGNED:
            none = 0.0 if hooks.WEIGHTED else float("inf")
            statistic = tl.load(of.statistic_ptr + m, mask=m < q_len, other=none)
            delta = tl.load(of.delta_ptr + m, mask=m < q_len, other=0.0)
        else:
            statistic, delta = tl.load(of.statistic_ptr + m), tl.load(of.delta_ptr + m)
        at = at_queries(place, m)
        product = _products(of.key, query, tile, tile.HEAD_PAD, of.ONE_LOOP)
        statistic, delta = statistic[None, :], delta[None, :]
        p, slope = weights_of_gradient(product, statistic, at, of.unit, hooks, PARTIAL)
        dv = tl.dot(p.to(gradient.dtype), gradient, dv, input_precision=tile.PRECISION)
        dp = _products(of.value, gradient, tile, tile.VALUE_PAD, of.ONE_LOOP)
        ds = score_gradient(product, p, slope, dp, delta, statistic, at, hooks, PARTIAL)
        dk = tl.dot(ds.to(query.dtype), query, dk, input_precision=tile.PRECISION)
    return dk, dv


@triton.jit
def first_row(batch, head, heads, length, head_step):
    """The first row of a head in a dense tensor, in rows."""
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
        *("q_len", "kv_len", "padded", "rows", "batch_heads", "head_step", "row_step"),
        *("dq_head_step", "dq_row_step"), *SCALARS,
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
    dq_head_step,
    dq_row_step,
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
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """dQ of one tile of queries; k and v are tensor descriptors under TMA, g is dO.

    o and dq are dense by heads or by tokens, or, with one batch entry, slices of the tokens of such
    tensors: `head_step` rows from a head to the next, `row_step` from a query to the next. lse and
    its gradient, float32 `[batch, heads, q_len]`, are contiguous; `sink_ptr` as in `forward`.
    Weights that are not normalised have neither o nor lse. statistic and delta, which the other
    kernels read, have `padded` places a head, a multiple of PADDED_BLOCK.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    documents = T[TABLES] if ALIGNED else None
    T = T[:TABLES]
    row, batch_head = tile_of_program(tl.program_id(0), rows, batch_heads, HEADS_TOGETHER)
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // group
    q0, origin, q_end, kv_end = row_of_tiles(row, documents, q_len, kv_len, BLOCK_M)
    q1 = tl.minimum(q0 + BLOCK_M, q_end) - 1
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    of_keys = (stride_kb, stride_kh, stride_kn, stride_kd)
    of_values = (stride_vb, stride_vh, stride_vn, stride_vd)
    keys = moved(source_of(k_ptr, batch, kv_head, of_keys, TMA), origin, documents)
    values = moved(source_of(v_ptr, batch, kv_head, of_values, TMA), origin, documents)

    m = q0 + tl.arange(0, BLOCK_M)
    q_base = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    g_base = head_of(g_ptr, batch, head, stride_gb, stride_gh)
    query = tile_of(q_base, m, q_end, stride_qm, stride_qd, HEAD_DIM, HEAD_PAD)
    gradient = tile_of(g_base, m, q_end, stride_gm, stride_gd, VALUE_DIM, VALUE_PAD)
    base = batch_head.to(tl.int64) * q_len
    product = tl.zeros((BLOCK_M,), tl.float32)
    if o_ptr is not None:
        o_base = o_ptr + first_row(batch, head, heads, q_len, head_step) * VALUE_DIM
        out = tile_of(o_base, m, q_end, row_step * VALUE_DIM, 1, VALUE_DIM, VALUE_PAD)
        product = tl.sum(out.to(tl.float32) * gradient.to(tl.float32), 1)
    statistic, delta = statistics_of(
        product, lse_ptr, sink_ptr, grad_lse_ptr, head, base, m, q_end, WEIGHTED
    )
    targets = (statistic_ptr, delta_ptr)
    at = batch_head.to(tl.int64) * padded
    stored = q_end if ALIGNED else padded
    store_statistics(statistic, delta, targets, at, m, stored)
    if row == rows - 1:
        past = (q_len if ALIGNED else q0 + BLOCK_M) + tl.arange(0, PADDED_BLOCK)
        store_nothing(targets, at, past, padded, WEIGHTED)

    q_idx = (m + zero)[:, None]
    T, unit = HOLD(batch, head, q_idx, kv_end, scale, S, T)
    dq = over_runs(
        _visit_keys,
        tl.zeros((BLOCK_M, HEAD_PAD), tl.float32),
        Queries(query, gradient, statistic, delta, keys, values, unit),
        Place(batch, head, q_idx, zero + origin, kv_end, S, T),
        Span(q0 + zero, q1 + zero, batch, head, kv_end, S + (zero + origin,), T),
        Hooks(HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, WEIGHTED),
        Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, 0),
        ONE_LOOP,
    )
    begin = first_row(batch, head, heads, q_len, dq_head_step)
    _store(dq_ptr, begin, m, q_end, dq_row_step, dq * scale, HEAD_DIM, HEAD_PAD)


@triton.jit(
    do_not_specialize=[
        *("q_len", "kv_len", "padded", "rows", "batch_heads", "parts", "head_step", "row_step"),
        *SCALARS,
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
    heads,
    group,
    parts,
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
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """dK and dV of one tile of keys of one key-value head; q and g are descriptors under TMA.

    The query heads that share keys are divided into `parts` of `group` heads, `heads` in a batch. A
    program visits one part's heads one after the other. With several parts, dk and dv have `heads`
    heads, which `gradient_sums.sums_of_parts` adds. `head_step` and `row_step` as in
    `backward_queries`, for dk and dv.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    documents = T[TABLES] if ALIGNED else None
    T = T[:TABLES]
    row, batch_head = tile_of_program(tl.program_id(0), rows, batch_heads, HEADS_TOGETHER)
    # The first keys are the longest under every causal mask.
    row = rows - 1 - row
    batch, part = batch_head // heads, batch_head % heads
    kv_head = part // parts
    k0, origin, kv_end, q_end = row_of_tiles(row, documents, kv_len, q_len, BLOCK_N)
    k1 = tl.minimum(k0 + BLOCK_N, kv_end) - 1
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    n = k0 + tl.arange(0, BLOCK_N)
    k_base = head_of(k_ptr, batch, kv_head, stride_kb, stride_kh)
    v_base = head_of(v_ptr, batch, kv_head, stride_vb, stride_vh)
    key = tile_of(k_base, n, kv_end, stride_kn, stride_kd, HEAD_DIM, HEAD_PAD)
    value = tile_of(v_base, n, kv_end, stride_vn, stride_vd, VALUE_DIM, VALUE_PAD)

    dk = tl.zeros((BLOCK_N, HEAD_PAD), tl.float32)
    dv = tl.zeros((BLOCK_N, VALUE_PAD), tl.float32)
    state = (dk, dv)
    of_queries = (stride_qb, stride_qh, stride_qm, stride_qd)
    of_gradients = (stride_gb, stride_gh, stride_gm, stride_gd)
    for g in tl.range(0, group):
        head = part * group + g
        queries = moved(source_of(q_ptr, batch, head, of_queries, TMA), origin, documents)
        gradients = moved(source_of(g_ptr, batch, head, of_gradients, TMA), origin, documents)
        base = (batch * heads * group + head).to(tl.int64) * padded + origin
        statistics, deltas = statistic_ptr + base, delta_ptr + base
        kv_idx = (n + zero)[:, None]
        held, unit = HOLD(batch, head, kv_idx, kv_end, scale, S, T)
        state = over_runs(
            _visit_queries,
            state,
            Keys(
                key,
                value,
                queries,
                gradients,
                statistics,
                deltas,
                q_end - origin,
                unit,
                ALIGNED,
                ONE_LOOP,
            ),
            Place(batch, head, zero + origin, kv_idx, kv_end, S, held),
            Span(k0 + zero, k1 + zero, batch, head, q_end, S + (zero + origin,), T),
            Hooks(HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, WEIGHTED),
            Tile(BLOCK_M, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, 0),
            ONE_LOOP,
        )
    dk, dv = state
    begin = first_row(batch, part, heads, kv_len, head_step)
    _store(dk_ptr, begin, n, kv_end, row_step, dk * scale, HEAD_DIM, HEAD_PAD)
    _store(dv_ptr, begin, n, kv_end, row_step, dv, VALUE_DIM, VALUE_PAD)
