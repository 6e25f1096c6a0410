"""Few queries against many keys: programs share the keys of a row of queries, and join their parts.

A step of decoding has one query of each head, too few programs for a GPU, and reads each key once.
Here query heads that share keys lie in one tile of rows, and `splits` programs take the tiles of
keys that the row visits in turn: wherever these lie, all programs have equally many. `joined` joins
their parts in the order of the splits: the same bits every time.
"""

from typing import NamedTuple

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
from .requests import OF_REQUESTS
from .runs import NO_TILE

_SPLITS_AT_ONCE = tl.constexpr(16)


@triton.jit
def _next_of_split(j, split, splits):
    """The first tile from j on that belongs to a split."""
    return split + (j - split + splits - 1) // splits * splits


class Given(NamedTuple):
    """Inputs of a kernel: addresses, strides and numbers, as in `decode`."""

    q_ptr: tl.tensor
    k_ptr: tl.tensor
    v_ptr: tl.tensor
    of_queries: tl.tuple
    of_keys: tl.tuple
    of_values: tl.tuple
    descales: tl.tuple
    pages: tl.tuple
    of_pages: tl.tuple
    scale: tl.tensor
    heads: tl.tensor
    group: tl.tensor


class Share(NamedTuple):
    """A tile of rows, and the tiles of keys of one program: every `splits`-th one from `split` on.

    Rows are queries, with `members` heads from `first_head` on side by side. Batch entry `batch` of
    the mask has `queries` queries; query 0 is number `start` of batch entry `entry` of the tensors.
    """

    batch: tl.tensor
    first_head: tl.tensor
    members: tl.tensor
    tile: tl.tensor
    split: tl.tensor
    splits: tl.tensor
    entry: tl.tensor
    start: tl.tensor
    queries: tl.tensor
    kv_len: tl.tensor


class Sums(NamedTuple):
    """For each row: the sums of weighted values `[BLOCK_M, VALUE_PAD]` up to a factor, the maximum
    score in a unit, and the sum of weights; its query and head, and whether it exists."""

    acc: tl.tensor
    factor: tl.tensor
    m: tl.tensor
    unit: tl.tensor
    l: tl.tensor
    m_offsets: tl.tensor
    head: tl.tensor
    exists: tl.tensor


@triton.jit
def sums_of_share(share, given, S, T, hooks, of_tile, BLOCK_M: tl.constexpr, WIDE: tl.constexpr):
    """The sums of a share, over the tiles of keys that its rows visit."""
    batch, first_head, members, tile, split, splits, entry, start, q_len, kv_len = share
    NEXT_RUN: tl.constexpr = hooks.NEXT_RUN
    BLOCK_N: tl.constexpr = of_tile.BLOCK
    PAGE: tl.constexpr = of_tile.PAGE
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    first_row = tile * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    exists = rows < q_len * members
    m_offsets = rows // members
    q0 = first_row // members
    q1 = tl.minimum((first_row + BLOCK_M - 1) // members, q_len - 1)
    head_of_row = first_head + rows % members
    head = head_of_row[:, None]
    d = tl.arange(0, of_tile.HEAD_PAD)
    stride_qb, stride_qh, stride_qm, stride_qd = given.of_queries
    query = tl.load(
        head_of(given.q_ptr, entry, head, stride_qb, stride_qh)
        + (start + m_offsets).to(tl.int64)[:, None] * stride_qm
        + d[None, :] * stride_qd,
        mask=exists[:, None] & (d < of_tile.HEAD_DIM)[None, :],
        other=0.0,
    )
    if query.dtype == tl.float8e4nv:
        query = query.to(tl.float16)
    kv_head = first_head // given.group
    keys, values, paged = sources_of(
        (given.k_ptr, given.v_ptr), batch, kv_head, (given.of_keys, given.of_values),
        given.pages, given.of_pages, of_tile.TMA, PAGE,
    )  # fmt: skip
    scale, factor = dequantising(given.scale, given.descales, batch, head, given.heads, given.group)

    q_idx = (m_offsets + zero)[:, None]
    T, unit = hooks.HOLD(batch, head, q_idx, kv_len, scale, S, T)
    row_unit = unit
    if given.descales is not None:  # of each head's queries
        row_unit = tl.reshape(unit + tl.zeros((BLOCK_M, 1), tl.float32), [BLOCK_M])
    acc = tl.zeros((BLOCK_M, of_tile.VALUE_PAD), tl.float32)
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
        of = Queries(query, keys, values, paged, unit, row_unit, splits)
        place = Place(batch, head, q_idx, zero, kv_len, S, T)
        if PAGE > 0:
            # Dropped keys in pages may hold NaN: partial tiles have a loop of their own.
            last_full = tl.where(partial, first, end)
            acc, m, l = visit(
                (acc, m, l), of, place, first, last_full, hooks, of_tile, False, False
            )
            first = tl.where(partial, first, end)
        acc, m, l = visit(
            (acc, m, l), of, place, first, end, hooks, of_tile,
            True if PAGE > 0 else partial,
            True,
        )  # fmt: skip
        j = _next_of_split(end, split, splits)
    return Sums(acc, factor, m, row_unit, l, m_offsets, head_of_row, exists)


@triton.jit
def store_sums(part_ptr, statistic_ptr, row, rows, sums, VALUE_PAD: tl.constexpr):
    """Store the sums of each row as row `row` of part and statistic, whose number of rows is the
    product of `rows`."""
    e = tl.arange(0, VALUE_PAD)
    part = part_ptr + row[:, None] * VALUE_PAD + e[None, :]
    tl.store(part, sums.acc * sums.factor, mask=sums.exists[:, None])
    tl.store(statistic_ptr + row, sums.m * (sums.unit * LOG2E), mask=sums.exists)
    of_sums = statistic_ptr + _product(rows)
    tl.store(of_sums + row, sums.l, mask=sums.exists)


@triton.jit
def _product(factors):
    """The product of numbers, in 64 bits."""
    product = factors[0].to(tl.int64)
    for i in tl.static_range(1, len(factors)):
        product = product * factors[i]
    return product


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

    Arguments as in `forward`, and:

    part: float32 `[batch, heads, q_len, splits, VALUE_PAD]`, sums of weighted values; statistic:
    float32 `[2, batch, heads, q_len, splits]`, the maxima of scores in units of log 2 and the sums
    of weights. Every entry of both is written.

    members: query heads in a tile, one or all that share keys; rows of a tile are queries, with the
    members of each side by side. tiles: number of tiles of rows; splits: programs for each.
    DEPENDENT, programs of `joined` may start while these run.
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
    start = tl.zeros((), tl.int32)
    sums = sums_of_share(
        Share(batch, first_head, members, tile, split, splits, batch, start, q_len, kv_len),
        Given(
            q_ptr, k_ptr, v_ptr,
            (stride_qb, stride_qh, stride_qm, stride_qd),
            (stride_kb, stride_kh, stride_kn, stride_kd),
            (stride_vb, stride_vh, stride_vn, stride_vd),
            descales, pages, (table_stride, most_pages, page_count), scale, heads, group,
        ),
        S,
        T,
        Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
        Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, TMA, PRECISION, PAGE),
        BLOCK_M,
        WIDE,
    )  # fmt: skip
    row = (batch * heads + sums.head).to(tl.int64) * q_len + sums.m_offsets
    row = row * splits + split
    rows = (batch_heads, q_len, splits)
    store_sums(part_ptr, statistic_ptr, row, rows, sums, VALUE_PAD)


@triton.jit
def join(
    part_ptr, statistic_ptr, first, step, splits, rows,
    VALUE_PAD: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Maximum, sum of weights and sums of weighted values of a row, from parts in their order.

    The parts of the row are the `splits` rows `first`, `first + step` and so on of part and
    statistic, which have as many rows as the product of `rows`.
    """
    e = tl.arange(0, VALUE_PAD)
    of_maxima = statistic_ptr + first
    of_sums = of_maxima + _product(rows)
    m = tl.cast(float("-inf"), tl.float32)
    if not WEIGHTED:
        for s in range(0, splits, _SPLITS_AT_ONCE):
            split = s + tl.arange(0, _SPLITS_AT_ONCE)
            found = tl.load(of_maxima + split * step, mask=split < splits, other=float("-inf"))
            m = tl.maximum(m, tl.max(found, 0))
    base = tl.where(m == float("-inf"), 0.0, m)
    acc = tl.zeros((VALUE_PAD,), tl.float32)
    l = tl.cast(0.0, tl.float32)
    for s in range(0, splits, _SPLITS_AT_ONCE):
        split = s + tl.arange(0, _SPLITS_AT_ONCE)
        exists = split < splits
        sums = tl.load(of_sums + split * step, mask=exists, other=0.0)
        part = tl.load(
            part_ptr + (first + split * step)[:, None] * VALUE_PAD + e[None, :],
            mask=exists[:, None],
            other=0.0,
        )
        if not WEIGHTED:
            found = tl.load(of_maxima + split * step, mask=exists, other=float("-inf"))
            share = tl.math.exp2(found - base)
            sums = sums * share
            part = part * share[:, None]
        l += tl.sum(sums, 0)
        acc += tl.sum(part, 0)
    return m, l, acc


@triton.jit
def store_row(
    results, m, l, acc, at, strides,
    VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr, WEIGHTED: tl.constexpr,
    NORMALISED: tl.constexpr,
):  # fmt: skip
    """Store the output of a query, and its lse, from the result of `join`.

    results: addresses of o, lse and sink, as in `forward`. at: batch, head and query, and the row
    of the lse.
    """
    o_ptr, lse_ptr, sink_ptr = results
    stride_ob, stride_oh, stride_om, stride_od = strides
    batch, head, q, row = at
    e = tl.arange(0, VALUE_PAD)
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
        tl.store(lse_ptr + row, log_sum(m, l, WEIGHTED))


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

    part and statistic come from `decode`; o, lse and sink as in `forward`. DEPENDENT, programs
    start before `decode` ends, and wait for it here.
    """
    if DEPENDENT:
        gdc_wait()
    pid = tl.program_id(0)
    batch_head, q = pid // q_len, pid % q_len
    batch, head = batch_head // heads, batch_head % heads
    first, rows = pid.to(tl.int64) * splits, (batch_heads, q_len, splits)
    m, l, acc = join(part_ptr, statistic_ptr, first, 1, splits, rows, VALUE_PAD, WEIGHTED)
    store_row(
        (o_ptr, lse_ptr, sink_ptr), m, l, acc, (batch, head, q, pid),
        (stride_ob, stride_oh, stride_om, stride_od), VALUE_DIM, VALUE_PAD, WEIGHTED, NORMALISED,
    )  # fmt: skip
