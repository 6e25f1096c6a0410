"""What the gradients need of each query, by a kernel of its own."""

import triton
import triton.language as tl

from .backward import statistics_of, store_statistics


@triton.jit(do_not_specialize=["q_len", "padded"])
def gradient_rows(
    g_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    grad_lse_ptr,
    statistic_ptr,
    delta_ptr,
    q_len,
    padded,
    heads,
    stride_b,
    stride_h,
    stride_n,
    stride_d,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
):
    """statistic and delta of ROWS queries of one head, as `backward_queries` keeps them.

    g (dO) is `[batch, heads, q_len, dim]` of any strides; out and lse are contiguous, both None
    for weights that are not normalised.
    """
    m = tl.program_id(0) % (padded // ROWS) * ROWS + tl.arange(0, ROWS)
    batch_head = tl.program_id(0) // (padded // ROWS)
    head = batch_head % heads
    base = batch_head.to(tl.int64)
    product = tl.zeros([ROWS], tl.float32)
    if o_ptr is not None:
        d = tl.arange(0, VALUE_PAD)
        inside = (m < q_len)[:, None] & (d < VALUE_DIM)[None, :]
        first = g_ptr + (batch_head // heads).to(tl.int64) * stride_b + head.to(tl.int64) * stride_h
        at = m.to(tl.int64)[:, None] * stride_n + d[None, :] * stride_d
        gradient = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        at = (base * q_len + m)[:, None] * VALUE_DIM + d[None, :]
        out = tl.load(o_ptr + at, mask=inside, other=0.0).to(tl.float32)
        product = tl.sum(gradient * out, 1)
    statistic, delta = statistics_of(
        product, lse_ptr, sink_ptr, grad_lse_ptr, head, base * q_len, m, q_len, WEIGHTED
    )
    store_statistics(statistic, delta, (statistic_ptr, delta_ptr), base * padded, m, padded)
