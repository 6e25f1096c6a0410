"""Copies of inputs without NaN and infinities, so that dropped pairs have no effect.

Kernels compute whole tiles. The weight of a dropped pair is 0, and 0 times NaN is NaN: a value
would reach a query that drops it, and, in gradients, a query would reach a key that it drops. In
these copies every number that is multiplied by a weight of 0 is finite. Kept pairs are marked where
the mask chooses: by scores that are NaN, and by weights that are infinite.

Numbers are read as integers of their bits: an exponent of ones is NaN or infinite.
"""

import triton
import triton.language as tl

SPOILED = tl.constexpr(-1e38)
"""The lse of a query that keeps a number which is not finite: weights of its kept pairs overflow,
and are NaN times a gradient of 0; its dropped pairs have weight 0 as ever."""


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
def finite_rows(
    given,
    copies,
    of_given,
    of_copies,
    lse_ptr,
    grad_lse_ptr,
    finite_lse_ptr,
    finite_grad_lse_ptr,
    length,
    heads,
    SIZES: tl.constexpr,
    PADS: tl.constexpr,
    ROWS: tl.constexpr,
    EXPONENT: tl.constexpr,
    WILD: tl.constexpr,
    WEIGHTED: tl.constexpr,
):
    """Copies of tensors `[batch, heads, length, size]`, given as integers of their bits.

    A row that is not finite in one of the tensors becomes WILD in the copies, a number for each.
    `of_given` and `of_copies` hold the strides of each tensor, SIZES the sizes, PADS powers of two.

    Queries, with dO and outputs, come with lse and its gradient (or None), contiguous float32. A
    row counts as not finite if these are not. Its lse becomes SPOILED unless the query keeps
    nothing. WEIGHTED, the lse is the sum of weights, and becomes NaN.
    """
    blocks = (length + ROWS - 1) // ROWS
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    member = tl.program_id(0) // blocks
    batch, head = member // heads, member % heads
    exists = (rows < length)[:, None]
    found = ()
    for i in tl.static_range(len(given)):
        at, inside = _rows_at(given[i], batch, head, rows, of_given[i], SIZES[i], PADS[i])
        found = found + (tl.load(at, mask=exists & inside, other=0),)
    if lse_ptr is not None:
        row = member.to(tl.int64) * length + rows
        lse = tl.load(lse_ptr + row, mask=rows < length, other=0.0)
    wild = _are_wild(found[0], EXPONENT)
    for i in tl.static_range(1, len(found)):
        wild += _are_wild(found[i], EXPONENT)
    wild = wild > 0
    if lse_ptr is not None:
        keeps = lse != 0.0 if WEIGHTED else lse != float("-inf")
        # A number less itself is 0 unless it is not finite.
        wild = wild | (keeps & (lse - lse != 0.0))
        if grad_lse_ptr is not None:
            change = tl.load(grad_lse_ptr + row, mask=rows < length, other=0.0)
            wild = wild | (change - change != 0.0)
            at = finite_grad_lse_ptr + row
            tl.store(at, tl.where(wild, 0.0, change), mask=rows < length)
        spoiled = float("nan") if WEIGHTED else SPOILED
        lse = tl.where(wild & keeps, spoiled, lse)
        tl.store(finite_lse_ptr + row, lse, mask=rows < length)
    for i in tl.static_range(len(found)):
        at, inside = _rows_at(copies[i], batch, head, rows, of_copies[i], SIZES[i], PADS[i])
        row_or_wild = tl.where(wild[:, None], WILD[i], found[i])
        tl.store(at, row_or_wild.to(found[i].dtype), mask=exists & inside)
