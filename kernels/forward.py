"""Forward attention: one program computes one tile of queries of one head.

The keys a tile visits come as runs of tiles, computed by a hook from the row number: PARTIAL runs
hold tiles to be masked, FULL runs hold tiles in which every pair is kept. Tiles outside of the
runs are never loaded. Nothing else about the mask reaches this file.

`elements` explains the words of all kernels: `S`, `T`, `HOLD`, `place`, `unit`.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .documents import keys_left, moved, row_of_tiles
from .elements import LN2, LOG2E, SCALARS, Hooks, Place, at_keys, biased, masked, weight_of
from .requests import OF_REQUESTS, Pages, pages_of, request_of, rows_of
from .runs import Span, over_runs

SMALLEST_SCALE = tl.constexpr(2.0**-64)  # that of the host (`backends/call.py`)


class Tile(NamedTuple):
    """How a plain kernel computes its tiles.

    BLOCK is their side along the loop, PAGE the rows of a page, 0 if keys are not in pages.
    """

    BLOCK: tl.constexpr
    HEAD_DIM: tl.constexpr
    VALUE_DIM: tl.constexpr
    HEAD_PAD: tl.constexpr
    VALUE_PAD: tl.constexpr
    TMA: tl.constexpr
    PRECISION: tl.constexpr
    PAGE: tl.constexpr


@triton.jit
def tile_of_program(pid, rows, batch_heads, together):
    """Row and (batch, head) of a program: last rows first, in groups of heads that share L2.

    The last rows are the longest under every causal mask; started first, they leave no tail.
    """
    group = pid // (rows * together)
    first = group * together
    size = tl.minimum(batch_heads - first, together)
    within = pid - first * rows
    return rows - 1 - within // size, first + within % size


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    """The first row of a head."""
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def tile_of(ptr, rows, length, stride_n, stride_d, SIZE: tl.constexpr, PAD: tl.constexpr):
    """Rows of one head, zero past the length and past SIZE."""
    d = tl.arange(0, PAD)
    at = ptr + rows.to(tl.int64)[:, None] * stride_n + d[None, :] * stride_d
    return tl.load(at, mask=(rows < length)[:, None] & (d < SIZE)[None, :], other=0.0)


@triton.jit
def dequantising(scale, descales, batch, head, heads, group):
    """The factors of q . k and of the output, for quantised inputs.

    A factor that is not positive would reverse the order of scores: it becomes NaN.
    """
    factor = 1.0
    if descales is not None:
        kv_head = batch * (heads // group) + head // group
        of_query = tl.load(descales[0] + batch * heads + head)
        of_key = tl.load(descales[1] + kv_head)
        positive = (of_query > 0.0) & (of_key > 0.0)
        # Biases are divided by the scale; below this least scale, scores of any size vanish.
        scale = tl.maximum(scale * of_query * of_key, SMALLEST_SCALE)
        scale = tl.where(positive, scale, float("nan"))
        factor = tl.load(descales[2] + kv_head)
    return scale, factor


@triton.jit
def source_of(ptr, batch, head, strides, TMA: tl.constexpr):
    """The source of a head for `load_tile`: a descriptor with batch and head under TMA, else a
    pointer to the head and its strides."""
    if TMA:
        return ptr, batch, head
    else:
        stride_b, stride_h, stride_n, stride_d = strides
        return head_of(ptr, batch, head, stride_b, stride_h), stride_n, stride_d


@triton.jit
def sources_of(
    ptrs, batch, kv_head, strides, pages, numbers, TMA: tl.constexpr, PAGE: tl.constexpr
):
    """Sources of the keys and values of a head, and the pages of a request, () without any.

    Sources in pages are of this head in all pages.
    """
    k_ptr, v_ptr = ptrs
    of_keys, of_values = strides
    if PAGE > 0:
        stride_kp, stride_kh, stride_kn, stride_kd = of_keys
        stride_vp, stride_vh, stride_vn, stride_vd = of_values
        keys = (k_ptr + kv_head.to(tl.int64) * stride_kh, stride_kp, stride_kn, stride_kd)
        values = (v_ptr + kv_head.to(tl.int64) * stride_vh, stride_vp, stride_vn, stride_vd)
        table_stride, most, count = numbers
        table = pages[0] + batch.to(tl.int64) * table_stride
        return keys, values, Pages(table, most, count)
    else:
        keys = source_of(k_ptr, batch, kv_head, of_keys, TMA)
        values = source_of(v_ptr, batch, kv_head, of_values, TMA)
        return keys, values, ()


@triton.jit
def load_tile(
    source, j, length, SIZE: tl.constexpr, PAD: tl.constexpr, tile, PARTIAL: tl.constexpr
):
    """The j-th tile of rows of a `source_of` keys or values: `[rows, PAD]`, zero past SIZE.

    Rows past the length are read as zero: by the descriptor, or when PARTIAL; FULL tiles have none.
    With pages, the page of the tile, or of each row, precedes the source.
    """
    n = j * tile.BLOCK + tl.arange(0, tile.BLOCK)
    if tile.TMA:
        descriptor, batch, head = source
        loaded = descriptor.load([batch, head, j * tile.BLOCK, 0]).reshape(tile.BLOCK, PAD)
    else:
        d = tl.arange(0, PAD)
        if tile.PAGE > 0:
            page, base, stride_page, stride_n, stride_d = source
            offset = rows_of(page, j, stride_page, stride_n, tile.PAGE, tile.BLOCK)
            at = base + offset[:, None] + d[None, :] * stride_d
        else:
            base, stride_n, stride_d = source
            at = base + n.to(tl.int64)[:, None] * stride_n + d[None, :] * stride_d
        if PARTIAL:
            loaded = tl.load(at, mask=(n < length)[:, None] & (d < SIZE)[None, :], other=0.0)
        elif PAD != SIZE:
            loaded = tl.load(at, mask=(d < SIZE)[None, :], other=0.0)
        else:
            loaded = tl.load(at)
    return loaded


class Queries(NamedTuple):
    """A tile of queries against the keys and values of its head.

    Scores and their maximum are in units of one positive number: `unit` for scores, `row_unit` for
    rows.
    """

    query: tl.tensor
    key_source: tl.tuple
    value_source: tl.tuple
    pages: tl.tuple
    unit: tl.tensor
    row_unit: tl.tensor
    step: tl.tensor


@triton.jit
def visit(state, of, place, first, end, hooks, tile, PARTIAL, RAGGED: tl.constexpr):
    """Every step-th tile of first <= j < end of keys, folded into the queries' running (acc, m, l).

    All are PARTIAL or none is; RAGGED, some may reach past the last key. m is the maximum of
    scores. WEIGHTED it is not used, and l is the plain sum.
    """
    acc, m, l = state
    query, unit, kv_len = of.query, of.unit, keys_left(place)
    columns = tl.arange(0, tile.BLOCK)
    if tile.PAGE > 0:
        following = pages_of(of.pages, first, tile.PAGE, tile.BLOCK)
    for j in tl.range(first, end, of.step):
        n = j * tile.BLOCK + columns
        if tile.PAGE > 0:
            # The next tile's is on its way while this tile is computed.
            keys = (following,) + of.key_source
            values = (following,) + of.value_source
            following = pages_of(of.pages, j + of.step, tile.PAGE, tile.BLOCK)
        else:
            keys, values = of.key_source, of.value_source
        key = load_tile(keys, j, kv_len, tile.HEAD_DIM, tile.HEAD_PAD, tile, RAGGED)
        key = key.to(query.dtype)
        score = tl.dot(query, key.T, input_precision=tile.PRECISION)
        at = at_keys(place, n)
        if hooks.WEIGHTED:
            p = weight_of(score, at, unit, hooks, PARTIAL)
            l += tl.sum(p, 1)
        else:
            score = masked(biased(score, at, hooks), at, hooks, PARTIAL)
            m_new = tl.maximum(m, tl.max(score, 1))
            base = m_new
            if RAGGED or hooks.BIASED is not None:
                # A row without a kept key so far has m = -inf, and -inf - -inf is not a number.
                base = tl.where(m_new == float("-inf"), 0.0, m_new)
            # The multiplication and addition that each element takes anyway includes the unit.
            factor = of.row_unit * LOG2E
            base = base * factor
            p = tl.math.exp2(score * (unit * LOG2E) - base[:, None])
            correction = tl.math.exp2(m * factor - base)
            l = l * correction + tl.sum(p, 1)
            acc = acc * correction[:, None]
            m = m_new
        value = load_tile(values, j, kv_len, tile.VALUE_DIM, tile.VALUE_PAD, tile, RAGGED)
        value = value.to(query.dtype)
        if tile.PAGE > 0 and RAGGED:
            # Zero times NaN is NaN, and a row that no query keeps may never have been written.
            some = tl.max(tl.abs(p), 0) > 0.0
            value = tl.where(some[:, None], value, 0.0).to(query.dtype)
        acc = tl.dot(p.to(value.dtype), value, acc, input_precision=tile.PRECISION)
    return acc, m, l


@triton.jit
def normaliser(m, l, factor, sink_ptr, head):
    """The factor of sums of weighted values: `factor` over the sum of the weights and of the sink's
    weight, 0 without weights. m is the maximum of scores in units of log 2."""
    empty = l == 0.0
    z = tl.where(empty, 1.0, l)
    if sink_ptr is not None:
        z += tl.math.exp2(tl.load(sink_ptr + head).to(tl.float32) * LOG2E - m)
    return tl.where(empty, 0.0, factor / z)


@triton.jit
def log_sum(m, l, WEIGHTED: tl.constexpr):
    """The natural logarithm of the sum of weights; WEIGHTED, the sum. m as in `normaliser`."""
    lse = l
    if not WEIGHTED:
        empty = l == 0.0
        lse = tl.where(empty, float("-inf"), (m + tl.math.log2(tl.where(empty, 1.0, l))) * LN2)
    return lse


@triton.jit(do_not_specialize=["q_len", "kv_len", "rows", "batch_heads", *OF_REQUESTS, *SCALARS])
def forward(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    T,
    descales,
    pages,
    scale,
    q_len,
    kv_len,
    rows,
    batch_heads,
    batches,
    page_count,
    most_pages,
    table_stride,
    heads,
    group,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    HOLD: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
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
    NORMALISED: tl.constexpr,
    ONE_LOOP: tl.constexpr,
    PAGE: tl.constexpr,
    FEW: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """o = softmax(scale * q k^T, biased and masked) v, and the natural-log lse of each query.

    `scale` must be positive. HOLD returns the unit of what BIASED returns: `scale` where terms are
    added to q . k, 1 where it is the biased score.

    Shapes: q `[batch, heads, q_len, HEAD_DIM]`, k and v `[batch, heads / group, kv_len, ...]`, all
    strided; lse `[batch, heads, q_len]` contiguous float32, or None. `T` holds the tables, `S`
    the numbers and table sizes of the expression, in the order its hooks were rendered for: the
    first TABLES and NUMBERS, real numbers as their bits; the others are not read. Numbers past
    those of `S` lie in one of the tables, int32. With TMA, k and v are tensor descriptors of blocks
    `[1, 1, BLOCK_N, HEAD_PAD or VALUE_PAD]`.

    `descales` holds the factors of q `[batch, heads]`, k and v `[batch, heads / group]`, contiguous
    float32, or is None. A float8 q, and its keys and values, are multiplied as float16, which
    has all their numbers. Pages of int8 or float8 beside a wider q are converted to its dtype.

    With a PAGE, keys and values lie in pages of PAGE rows: k and v are `[pages, heads / group,
    PAGE, ...]`, `pages` holds the table `[batches, most_pages]` and, if queries are packed, the
    first query of each request (`requests`); q, o and lse then have one batch entry. Requests with
    up to FEW queries are left to `ragged`.

    ALIGNED, rows of tiles are those of the table `T[TABLES]`, as `row_of_tiles` reads it, and the
    mask keeps no pair of two documents; the tensors are pointers then, and there are no pages.

    `sink_ptr` holds a logit for each head that joins the normaliser, or is None. WEIGHTED, the
    biased score is the weight itself, divided by the sum of weights when NORMALISED; the sum is
    then written in place of the lse.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    documents = T[TABLES] if ALIGNED else None
    T = T[:TABLES]
    row, batch_head = tile_of_program(tl.program_id(0), rows, batch_heads, HEADS_TOGETHER)
    batch, head = batch_head // heads, batch_head % heads
    own = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    o_base = head_of(o_ptr, batch, head, stride_ob, stride_oh)
    lse_row = batch_head.to(tl.int64) * q_len
    if PAGE > 0:
        if len(pages) > 1:  # packed
            batch, row, start, count = request_of(row, pages[1], batches, q_len, 1, BLOCK_M, FEW)
            own += start.to(tl.int64) * stride_qm
            o_base += start.to(tl.int64) * stride_om
            lse_row += start
            q_len = count
            kv_len = tl.where((batch < batches) & (row * BLOCK_M < q_len), kv_len, 0)
            batch = tl.minimum(batch, batches - 1)
    q0, origin, q_len, kv_len = row_of_tiles(row, documents, q_len, kv_len, BLOCK_M)
    q1 = tl.minimum(q0 + BLOCK_M, q_len) - 1
    # Numbers near the limit of 32 bits make index arithmetic 64 bits wide.
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)

    m_offsets = q0 + tl.arange(0, BLOCK_M)
    kv_head = head // group
    of_keys = (stride_kb, stride_kh, stride_kn, stride_kd)
    of_values = (stride_vb, stride_vh, stride_vn, stride_vd)
    keys, values, paged = sources_of(
        (k_ptr, v_ptr), batch, kv_head, (of_keys, of_values),
        pages, (table_stride, most_pages, page_count), TMA, PAGE,
    )  # fmt: skip
    keys, values = moved(keys, origin, documents), moved(values, origin, documents)
    query = tile_of(own, m_offsets, q_len, stride_qm, stride_qd, HEAD_DIM, HEAD_PAD)
    if query.dtype == tl.float8e4nv:
        query = query.to(tl.float16)
    scale, factor = dequantising(scale, descales, batch, head, heads, group)

    acc = tl.zeros((BLOCK_M, VALUE_PAD), tl.float32)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    q_idx = (m_offsets + zero)[:, None]
    T, unit = HOLD(batch, head, q_idx, kv_len, scale, S, T)
    acc, m, l = over_runs(
        visit,
        (acc, m, l),
        Queries(query, keys, values, paged, unit, unit, 1),
        Place(batch, head, q_idx, zero + origin, kv_len, S, T),
        Span(q0 + zero, q1 + zero, batch, head, kv_len, S + (zero + origin,), T),
        Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
        Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, PAGE),
        ONE_LOOP,
    )
    m = m * (unit * LOG2E)

    out = acc
    if NORMALISED:
        out = acc * normaliser(m, l, factor, sink_ptr, head)[:, None]
    elif descales is not None:
        out = acc * factor
    e = tl.arange(0, VALUE_PAD)
    tl.store(
        o_base + m_offsets.to(tl.int64)[:, None] * stride_om + e[None, :] * stride_od,
        out.to(o_ptr.dtype.element_ty),
        mask=(m_offsets < q_len)[:, None] & (e < VALUE_DIM)[None, :],
    )
    if lse_ptr is not None:
        at = lse_ptr + lse_row + m_offsets
        tl.store(at, log_sum(m, l, WEIGHTED), mask=m_offsets < q_len)
