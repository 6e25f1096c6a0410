"""Copies of inputs without NaN and infinities, so that what a mask drops takes no part.

Kernels compute whole tiles. The weight of a dropped pair is 0, and 0 times NaN is NaN: a value that
one query of a tile drops would reach it, and in gradients so would a query that drops a key. In
these copies every number that a product meets with a weight of 0 is finite. What is kept is marked
where the mask chooses: by scores that are NaN, and by weights that are infinite.

Numbers are read as integers of their bits: an exponent of ones is NaN or infinite.
"""

import triton
import triton.language as tl

SPOILED = tl.constexpr(-1e38)
"""The lse of a query that keeps what is not finite: weights of what it keeps overflow, times a
gradient of 0 they are NaN; what it drops has weight 0 as ever."""


@triton.jit
def _rows_at(ptr, batch, head, rows, strides, SIZE: tl.constexpr, PAD: tl.constexpr):
    """Addresses of rows of a head, `[rows, PAD]`, and which columns there are."""
    stride_b, stride_h, stride_n, stride_d = strides
    d = tl.arange(0, PAD)[None, :]
    base = ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h
    return base + rows.to(tl.int64)[:, None] * stride_n + d * stride_d, d < SIZE


@triton.jit
def _are_wild(bits, EXPONENT: tl.constexpr):
    """Which rows hold NaN or an infinity, 1 or 0."""
    return tl.max(((bits & EXPONENT) == EXPONENT).to(tl.int32), 1)


@triton.jit(do_not_specialize=["length"])
def finite_keys(
    k_ptr,
    v_ptr,
    finite_k_ptr,
    finite_v_ptr,
    length,
    heads,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_xb, stride_xh, stride_xn, stride_xd,
    stride_yb, stride_yh, stride_yn, stride_yd,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    EXPONENT: tl.constexpr,
    WILD_KEY: tl.constexpr,
):  # fmt: skip
    """Keys and values `[batch, heads, length, dim]` as integers of their bits; copies likewise.

    A row that is not finite, in the key or in the value, becomes WILD_KEY in the key and 0 in the
    value.
    """
    blocks = (length + ROWS - 1) // ROWS
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    member = tl.program_id(0) // blocks
    batch, head = member // heads, member % heads
    exists = (rows < length)[:, None]
    of_keys = (stride_kb, stride_kh, stride_kn, stride_kd)
    of_values = (stride_vb, stride_vh, stride_vn, stride_vd)
    at, inside = _rows_at(k_ptr, batch, head, rows, of_keys, HEAD_DIM, HEAD_PAD)
    key = tl.load(at, mask=exists & inside, other=0)
    at, inside = _rows_at(v_ptr, batch, head, rows, of_values, VALUE_DIM, VALUE_PAD)
    value = tl.load(at, mask=exists & inside, other=0)
    wild = ((_are_wild(key, EXPONENT) + _are_wild(value, EXPONENT)) > 0)[:, None]
    of_keys = (stride_xb, stride_xh, stride_xn, stride_xd)
    of_values = (stride_yb, stride_yh, stride_yn, stride_yd)
    at, inside = _rows_at(finite_k_ptr, batch, head, rows, of_keys, HEAD_DIM, HEAD_PAD)
    tl.store(at, tl.where(wild, WILD_KEY, key).to(key.dtype), mask=exists & inside)
    at, inside = _rows_at(finite_v_ptr, batch, head, rows, of_values, VALUE_DIM, VALUE_PAD)
    tl.store(at, tl.where(wild, 0, value).to(value.dtype), mask=exists & inside)


@triton.jit(do_not_specialize=["length"])
def finite_queries(
    q_ptr,
    g_ptr,
    o_ptr,
    lse_ptr,
    grad_lse_ptr,
    finite_q_ptr,
    finite_g_ptr,
    finite_o_ptr,
    finite_lse_ptr,
    finite_grad_lse_ptr,
    length,
    heads,
    stride_qb, stride_qh, stride_qn, stride_qd,
    stride_gb, stride_gh, stride_gn, stride_gd,
    stride_ob, stride_oh, stride_on, stride_od,
    stride_xb, stride_xh, stride_xn, stride_xd,
    stride_yb, stride_yh, stride_yn, stride_yd,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    EXPONENT: tl.constexpr,
    WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Queries, gradients (dO) and outputs likewise, with lse and its gradient, contiguous float32.

    A row that is not finite becomes 0, and its lse SPOILED unless the query keeps nothing.
    WEIGHTED, the lse is the sum of weights, and becomes NaN. Copies of gradients and outputs lie
    alike. The lse may have no gradient (None).
    """
    blocks = (length + ROWS - 1) // ROWS
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    member = tl.program_id(0) // blocks
    batch, head = member // heads, member % heads
    exists = (rows < length)[:, None]
    of_queries = (stride_qb, stride_qh, stride_qn, stride_qd)
    of_gradients = (stride_gb, stride_gh, stride_gn, stride_gd)
    of_outputs = (stride_ob, stride_oh, stride_on, stride_od)
    at, inside = _rows_at(q_ptr, batch, head, rows, of_queries, HEAD_DIM, HEAD_PAD)
    query = tl.load(at, mask=exists & inside, other=0)
    at, inside = _rows_at(g_ptr, batch, head, rows, of_gradients, VALUE_DIM, VALUE_PAD)
    gradient = tl.load(at, mask=exists & inside, other=0)
    at, inside = _rows_at(o_ptr, batch, head, rows, of_outputs, VALUE_DIM, VALUE_PAD)
    out = tl.load(at, mask=exists & inside, other=0)
    row = member.to(tl.int64) * length + rows
    lse = tl.load(lse_ptr + row, mask=rows < length, other=0.0)
    keeps = lse != 0.0 if WEIGHTED else lse != float("-inf")
    wild = _are_wild(query, EXPONENT) + _are_wild(gradient, EXPONENT) + _are_wild(out, EXPONENT)
    # A number less itself is 0 unless it is not finite.
    wild = (wild > 0) | (keeps & (lse - lse != 0.0))
    if grad_lse_ptr is not None:
        change = tl.load(grad_lse_ptr + row, mask=rows < length, other=0.0)
        wild = wild | (change - change != 0.0)
        at = finite_grad_lse_ptr + row
        tl.store(at, tl.where(wild, 0.0, change), mask=rows < length)
    spoiled = float("nan") if WEIGHTED else SPOILED
    lse = tl.where(wild & keeps, spoiled, lse)
    tl.store(finite_lse_ptr + row, lse, mask=rows < length)
    wild = wild[:, None]
    of_queries = (stride_xb, stride_xh, stride_xn, stride_xd)
    of_outputs = (stride_yb, stride_yh, stride_yn, stride_yd)
    at, inside = _rows_at(finite_q_ptr, batch, head, rows, of_queries, HEAD_DIM, HEAD_PAD)
    tl.store(at, tl.where(wild, 0, query).to(query.dtype), mask=exists & inside)
    at, inside = _rows_at(finite_g_ptr, batch, head, rows, of_outputs, VALUE_DIM, VALUE_PAD)
    tl.store(at, tl.where(wild, 0, gradient).to(gradient.dtype), mask=exists & inside)
    at, inside = _rows_at(finite_o_ptr, batch, head, rows, of_outputs, VALUE_DIM, VALUE_PAD)
    tl.store(at, tl.where(wild, 0, out).to(out.dtype), mask=exists & inside)
