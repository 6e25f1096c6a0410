"""Few queries against many keys: programs share the keys of a row of queries, and join their parts.

A step of decoding has one query of each head, too few programs for a GPU, and reads each key once.
Here query heads that share keys lie in one tile of rows, and `splits` programs take the tiles of
keys that the row visits in turn: however they lie, each program has as many as any other. What
each of them has is joined by `joined`, in the order of the splits: the same bits every time.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .elements import LOG2E, SCALARS, Hooks, Place
from .forward import (
    Queries,
    Tile,
    dequantising,
    head_of,
    log_sum,
    normaliser,
    sources_of,
    visit,
)
from .requests import OF_REQUESTS, request_of
from .runs import NO_TILE

_SPLITS_AT_ONCE = tl.constexpr(16)


@triton.jit
def _next_of_split(j, split, splits):
    """The first tile from j on that belongs to a split."""
    return split + (j - split + splits - 1) // splits * splits


@triton.jit(
    do_not_specialize=[
        *("q_len", "kv_len", "tiles", "splits", "batch_heads"), *OF_REQUESTS, *SCALARS,
    ]
)  # fmt: skip
def decode(
    q_ptr,
    k_ptr,
    v_ptr,
    part_ptr,
    statistic_ptr,
    T,
    descales,
    pages,
    scale,
    q_len,
    kv_len,
    tiles,
    splits,
    batch_heads,
    batches,
    page_count,
    most_pages,
    table_stride,
    heads,
    group,
    members,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
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
    WIDE: tl.constexpr,
    TMA: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DEPENDENT: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """One split's sums of weighted values and of weights, and its maximum, for a tile of rows.

    Arguments as of `forward`, and:

    part: float32 `[batch, heads, q_len, splits, VALUE_PAD]`, sums of weighted values; statistic:
    float32 `[2, batch, heads, q_len, splits]`, the maxima of scores in units of log 2 and the sums
    of weights. All of both are written.

    members: query heads in a tile, one or all that share keys; rows of a tile are queries, with the
    members of each side by side. tiles: of rows; splits: programs for each. DEPENDENT, programs of
    `joined` may start while these run.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    if DEPENDENT:
        gdc_launch_dependents()
    # Tiles of rows that read the same keys are neighbours.
    pid = tl.program_id(0)
    tile, split = pid % tiles, pid // tiles % splits
    part = pid // (tiles * splits)
    parts = heads // members
    batch, first_head = part // parts, part % parts * members
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    entry, start, queries = batch, tl.zeros((), tl.int32), q_len
    if PAGE > 0:
        if len(pages) > 1:  # packed
            batch, tile, start, q_len = request_of(tile, pages[1], batches, q_len, members, BLOCK_M)
            some = (batch < batches) & (tile * BLOCK_M < q_len * members)
            kv_len = tl.where(some, kv_len, 0)
            batch = tl.minimum(batch, batches - 1)

    first_row = tile * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    exists = rows < q_len * members
    m_offsets = rows // members
    q0 = first_row // members
    q1 = tl.minimum((first_row + BLOCK_M - 1) // members, q_len - 1)
    head_of_row = first_head + rows % members
    head = head_of_row[:, None]
    d = tl.arange(0, HEAD_PAD)
    e = tl.arange(0, VALUE_PAD)
    query = tl.load(
        head_of(q_ptr, entry, head, stride_qb, stride_qh)
        + (start + m_offsets).to(tl.int64)[:, None] * stride_qm
        + d[None, :] * stride_qd,
        mask=exists[:, None] & (d < HEAD_DIM)[None, :],
        other=0.0,
    )
    if query.dtype == tl.float8e4nv:
        query = query.to(tl.float16)
    kv_head = first_head // group
    of_keys = (stride_kb, stride_kh, stride_kn, stride_kd)
    of_values = (stride_vb, stride_vh, stride_vn, stride_vd)
    keys, values, paged = sources_of(
        (k_ptr, v_ptr), batch, kv_head, (of_keys, of_values),
        pages, (table_stride, most_pages, page_count), TMA, PAGE,
    )  # fmt: skip
    scale, factor = dequantising(scale, descales, batch, head, heads, group)

    q_idx = (m_offsets + zero)[:, None]
    T, unit = HOLD(batch, head, q_idx, kv_len, scale, S, T)
    row_unit = unit
    if descales is not None:  # of each head's queries
        row_unit = tl.reshape(unit + tl.zeros((BLOCK_M, 1), tl.float32), [BLOCK_M])
    acc = tl.zeros((BLOCK_M, VALUE_PAD), tl.float32)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    j = split
    # invariant: j >= split
    # invariant: visits((acc, m, l)) == (touched & mine & (t < j))
    # invariant: implies(unmasked((acc, m, l)), ~unfull)
    # until: NO_TILE - j
    while j < NO_TILE:
        first, end, partial = NEXT_RUN(
            j, q0 + zero, q1 + zero, batch, first_head, kv_len, S, T, BLOCK_N
        )
        first = _next_of_split(first, split, splits)
        if PAGE > 0:
            # What a tile drops may hold NaN in a page: such tiles have a loop of their own.
            last_full = tl.where(partial, first, end)
            acc, m, l = visit(
                (acc, m, l),
                Queries(query, keys, values, paged, unit, row_unit, splits),
                Place(batch, head, q_idx, zero, kv_len, S, T),
                first,
                last_full,
                Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
                Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, PAGE),
                False,
                False,
            )
            first = tl.where(partial, first, end)
        acc, m, l = visit(
            (acc, m, l),
            Queries(query, keys, values, paged, unit, row_unit, splits),
            Place(batch, head, q_idx, zero, kv_len, S, T),
            first,
            end,
            Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
            Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, PAGE),
            True if PAGE > 0 else partial,
            True,
        )
        j = _next_of_split(end, split, splits)

    row = (entry * heads + head_of_row).to(tl.int64) * queries + start + m_offsets
    row = row * splits + split
    tl.store(part_ptr + row[:, None] * VALUE_PAD + e[None, :], acc * factor, mask=exists[:, None])
    tl.store(statistic_ptr + row, m * (row_unit * LOG2E), mask=exists)
    of_sums = statistic_ptr + batch_heads.to(tl.int64) * queries * splits
    tl.store(of_sums + row, l, mask=exists)


@triton.jit(do_not_specialize=["q_len", "splits", "batch_heads"])
def joined(
    part_ptr,
    statistic_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    q_len,
    splits,
    batch_heads,
    heads,
    stride_ob, stride_oh, stride_om, stride_od,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    WEIGHTED: tl.constexpr,
    NORMALISED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The output of one query of one head, and its lse, from the parts of its splits.

    part and statistic are what `decode` wrote; o, lse and sink as of `forward`. DEPENDENT, programs
    start before `decode` ends, and wait for it here.
    """
    if DEPENDENT:
        gdc_wait()
    pid = tl.program_id(0)
    batch_head, q = pid // q_len, pid % q_len
    batch, head = batch_head // heads, batch_head % heads
    e = tl.arange(0, VALUE_PAD)
    first = pid.to(tl.int64) * splits
    of_maxima = statistic_ptr + first
    of_sums = of_maxima + batch_heads.to(tl.int64) * q_len * splits
    m = tl.cast(float("-inf"), tl.float32)
    if not WEIGHTED:
        for s in range(0, splits, _SPLITS_AT_ONCE):
            split = s + tl.arange(0, _SPLITS_AT_ONCE)
            found = tl.load(of_maxima + split, mask=split < splits, other=float("-inf"))
            m = tl.maximum(m, tl.max(found, 0))
    base = tl.where(m == float("-inf"), 0.0, m)
    acc = tl.zeros((VALUE_PAD,), tl.float32)
    l = tl.cast(0.0, tl.float32)
    for s in range(0, splits, _SPLITS_AT_ONCE):
        split = s + tl.arange(0, _SPLITS_AT_ONCE)
        exists = split < splits
        sums = tl.load(of_sums + split, mask=exists, other=0.0)
        part = tl.load(
            part_ptr + (first + split)[:, None] * VALUE_PAD + e[None, :],
            mask=exists[:, None],
            other=0.0,
        )
        if not WEIGHTED:
            found = tl.load(of_maxima + split, mask=exists, other=float("-inf"))
            share = tl.math.exp2(found - base)
            sums = sums * share
            part = part * share[:, None]
        l += tl.sum(sums, 0)
        acc += tl.sum(part, 0)
    out = acc
    if NORMALISED:
        out = acc * normaliser(m, l, 1.0, sink_ptr, head)
    tl.store(
        head_of(o_ptr, batch, head, stride_ob, stride_oh)
        + q.to(tl.int64) * stride_om
        + e * stride_od,
        out.to(o_ptr.dtype.element_ty),
        mask=e < VALUE_DIM,
    )
    if lse_ptr is not None:
        tl.store(lse_ptr + pid, log_sum(m, l, WEIGHTED))
