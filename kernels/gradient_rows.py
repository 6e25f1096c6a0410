"""A kernel for the row statistics that the gradient kernels read."""

import triton
import triton.language as tl

from .backward import first_row, statistics_of, store_statistics
from .elements import LOG2E

PIECES = tl.constexpr(3)
"""bfloat16 pieces that add up to a float32 number."""

SHIFT_COLUMNS = tl.constexpr(16)
"""Columns stored for each query: the depth of a matrix instruction. Most are zeros."""

_LARGEST = tl.constexpr(3e38)
"""The largest number in pieces; subtracted from a score, it makes any weight 0."""


@triton.jit
def _pieces(number):
    """The pieces of numbers; NaN stays NaN."""
    number = tl.where(number > _LARGEST, _LARGEST, number)
    number = tl.where(number < -_LARGEST, -_LARGEST, number)
    high = number.to(tl.bfloat16)
    rest = number - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _store_shifts(ptr, of_score, of_product):
    """Store rows of columns at ptr `[n]`: pieces of two numbers `[n]` each, then zeros."""
    column = tl.arange(0, SHIFT_COLUMNS)[None, :]
    high, middle, low = _pieces(of_score)
    row = tl.where(column == 0, high[:, None], 0.0)
    row = tl.where(column == 1, middle[:, None], row)
    row = tl.where(column == 2, low[:, None], row)
    high, middle, low = _pieces(of_product)
    row = tl.where(column == PIECES, high[:, None], row)
    row = tl.where(column == PIECES + 1, middle[:, None], row)
    row = tl.where(column == PIECES + 2, low[:, None], row)
    tl.store(ptr[:, None] + column, row.to(tl.bfloat16))


@triton.jit(do_not_specialize=["q_len", "padded", "part_counters", "head_step", "row_step"])
def gradient_rows(
    g_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    grad_lse_ptr,
    statistic_ptr,
    delta_ptr,
    shift_ptr,
    counter_ptr,
    part_counter_ptr,
    part_counters,
    scale,
    q_len,
    padded,
    heads,
    head_step,
    row_step,
    stride_gb,
    stride_gh,
    stride_gn,
    stride_gd,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    COUNTED: tl.constexpr,
):
    """statistic and delta of ROWS queries of one head, as `backward_queries` stores them.

    g (dO) is `[batch, heads, q_len, dim]` of any strides; out as in `backward_queries`, lse is
    contiguous, both None for weights that are not normalised. shift: numbers that the products
    q . k and dO . v of a query add, in pieces, so that none is subtracted later; bfloat16
    `[batch * heads * padded, SHIFT_COLUMNS]`, or None. counter, part_counter: counters of
    `hopper_gradients`, or None, set to zero here: two for each tile of COUNTED queries, and at most
    ROWS for each program.
    """
    m = tl.program_id(0) % (padded // ROWS) * ROWS + tl.arange(0, ROWS)
    batch_head = tl.program_id(0) // (padded // ROWS)
    head = batch_head % heads
    base = batch_head.to(tl.int64)
    product = tl.zeros([ROWS], tl.float32)
    if o_ptr is not None:
        d = tl.arange(0, VALUE_PAD)
        inside = (m < q_len)[:, None] & (d < VALUE_DIM)[None, :]
        first = (
            g_ptr + (batch_head // heads).to(tl.int64) * stride_gb + head.to(tl.int64) * stride_gh
        )
        at = m.to(tl.int64)[:, None] * stride_gn + d[None, :] * stride_gd
        gradient = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        begin = first_row(batch_head // heads, head, heads, q_len, head_step)
        at = (begin + m.to(tl.int64) * row_step)[:, None] * VALUE_DIM + d[None, :]
        out = tl.load(o_ptr + at, mask=inside, other=0.0).to(tl.float32)
        product = tl.sum(gradient * out, 1)
    statistic, delta = statistics_of(
        product, lse_ptr, sink_ptr, grad_lse_ptr, head, base * q_len, m, q_len, WEIGHTED
    )
    store_statistics(statistic, delta, (statistic_ptr, delta_ptr), base * padded, m, padded)
    if shift_ptr is not None:
        shifts = shift_ptr + (base * padded + m) * SHIFT_COLUMNS
        _store_shifts(shifts, -statistic / (scale * LOG2E), -delta)
    if counter_ptr is not None:
        tiles = (q_len + COUNTED - 1) // COUNTED
        tile = tl.program_id(0) % (padded // ROWS) * ROWS // COUNTED
        counters = counter_ptr + (base * tiles + tile) * 2
        tl.store(counters + tl.arange(0, 2), tl.zeros([2], tl.int32), mask=tile < tiles)
    if part_counter_ptr is not None:
        at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        tl.store(part_counter_ptr + at, tl.zeros([ROWS], tl.int32), mask=at < part_counters)
