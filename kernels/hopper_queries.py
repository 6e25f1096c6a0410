"""dQ on Hopper, in Gluon: the sums of `backward`, by warps that load and warps that compute.

As in `hopper_forward` a producer warp fills rings of tiles by the tensor memory accelerator. A
consumer holds 64 queries and their output gradients against tiles of keys and values.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .backward import (
    PADDED_BLOCK,
    first_row,
    slope_of,
    statistics_of,
    store_nothing,
    store_statistics,
    weight_gradient,
    weights,
    weights_and_slopes,
)
from .forward import SCALARS, tile_of_program
from .gluon_names import barrier, copy_to_global, copy_to_shared
from .hopper_common import (
    ROWS,
    columns_from,
    matrix_of,
    release,
    ring_of_barriers,
    rows_from,
    rows_of_program,
    stage_of,
)
from .runs import NO_TILE

_past_layout = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@gluon.jit
def _queries(w, shape, CONSUMERS: gl.constexpr, HEADS_TOGETHER: gl.constexpr):
    """Batch and head of the w-th tile of queries, its first query and its last."""
    rows, batch_heads, heads, _group, _kv_len, q_len, _padded = shape
    row, batch_head = tile_of_program(w, rows, batch_heads, HEADS_TOGETHER)
    q0 = row * (CONSUMERS * ROWS)
    q1 = gl.minimum(q0 + CONSUMERS * ROWS, q_len) - 1
    return batch_head // heads, batch_head % heads, q0, q1


@gluon.jit
def _produce_keys(
    sources,
    held,
    rings,
    held_barriers,
    key_barriers,
    value_barriers,
    shape,
    S,
    T,
    NEXT_RUN: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    HELD: gl.constexpr,
):
    """The producer: queries and gradients of a row, then keys and values."""
    q_desc, k_desc, v_desc, g_desc = sources
    queries, gradients = held
    keys, values = rings
    held_ready, held_free = held_barriers
    key_ready, key_free = key_barriers
    value_ready, value_free = value_barriers
    _rows, _batch_heads, _heads, group, kv_len, _q_len, _padded = shape
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    start, stop, step = rows_of_program(shape, HELD > 1)
    for w in range(start, stop, step):
        batch, head, q0, q1 = _queries(w, shape, CONSUMERS, HEADS_TOGETHER)
        kv_head = head // group
        place, phase = stage_of(done, HELD)
        ready = held_ready.index(place)
        mbarrier.wait(held_free.index(place), phase ^ 1)
        mbarrier.expect(ready, CONSUMERS * (q_desc.block_type.nbytes + g_desc.block_type.nbytes))
        for c in gl.static_range(CONSUMERS):
            first = [batch, head, q0 + c * ROWS, 0]
            at = place * CONSUMERS + c
            copy_to_shared(q_desc, first, ready, queries.index(at))
            copy_to_shared(g_desc, first, ready, gradients.index(at))
        done += 1
        j, end, _partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        while j < NO_TILE:
            stage, phase = stage_of(i, STAGES)
            first = [batch, kv_head, j * BLOCK_N, 0]
            ready = key_ready.index(stage)
            mbarrier.wait(key_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, k_desc.block_type.nbytes)
            copy_to_shared(k_desc, first, ready, keys.index(stage))
            ready = value_ready.index(stage)
            mbarrier.wait(value_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, v_desc.block_type.nbytes)
            copy_to_shared(v_desc, first, ready, values.index(stage))
            i += 1
            j += 1
            if j == end:
                j, end, _partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)


@gluon.constexpr_function
def _rows_of_output(VALUE_PAD):
    """The layout of 64 rows of the output: 16 bytes a thread at a time, 16 rows a warp."""
    return gl.BlockedLayout(
        [VALUE_PAD // 16, 8], [256 // VALUE_PAD, VALUE_PAD // 8], [4, 1], [1, 0]
    )


@gluon.jit
def _output_rows(o_ptr, first, q_len, row_step, VALUE_DIM: gl.constexpr, VALUE_PAD: gl.constexpr):
    """64 rows of the output of one head, zero past the length."""
    layout: gl.constexpr = _rows_of_output(VALUE_PAD)
    rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, VALUE_PAD, gl.SliceLayout(0, layout))[None, :]
    inside = (rows < q_len) & (columns < VALUE_DIM)
    at = rows.to(gl.int64) * row_step * VALUE_DIM + columns
    return gl.load(o_ptr + at, mask=inside, other=0.0)


@gluon.jit
def _dots(out, gradient, layout: gl.constexpr):
    """dO . O of 64 queries, from rows of the output and the memory of dO."""
    same = gradient.load(out.type.layout)
    return gl.convert_layout(gl.sum(out.to(gl.float32) * same.to(gl.float32), 1), layout)


@gluon.jit
def _changes(
    product,
    dp,
    PENDING: gl.constexpr,
    free,
    of_rows,
    place,
    j,
    partial,
    S,
    T,
    unit,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    SLOPE: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
):
    """The gradient of a tile of scores from products under way, PENDING others after them."""
    batch, head, q_idx, kv_len = place
    statistic, delta = of_rows
    kv_idx = columns_from(j * BLOCK_N, BLOCK_N)
    at = (batch, head, q_idx, kv_idx, kv_len)
    product = warpgroup_mma_wait(PENDING + 1, deps=[product])
    if WEIGHTED:
        _p, slope = weights_and_slopes(
            product, statistic, at, S, T, unit, MASKED, BIASED, SLOPE, partial
        )
    else:
        p = weights(product, statistic, at, S, T, unit, MASKED, BIASED, partial, False)
    dp = warpgroup_mma_wait(PENDING, deps=[dp])
    release(free)
    if WEIGHTED:
        if NORMALISED:
            dp = dp - delta
        ds = dp * slope
    else:
        ds = weight_gradient(p, dp, delta, statistic, at, S, T, MASKED, partial, False)
        ds = ds * slope_of(product, at, S, T, SLOPE)
    return ds


@gluon.jit
def _consume_keys(
    C: gl.constexpr,
    target,
    of_rows,
    held,
    rings,
    held_barriers,
    key_barriers,
    value_barriers,
    shape,
    S,
    T,
    scale,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    SLOPE: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_DIM: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    OVERLAP: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    HELD: gl.constexpr,
):
    """Consumer C: dQ of its 64 queries of every row, from each tile of keys of the runs."""
    o_ptr, head_step, row_step, lse_ptr, sink_ptr, grad_lse_ptr, statistic_ptr, delta_ptr = of_rows
    queries, gradients = held
    keys, values = rings
    held_ready, held_free = held_barriers
    key_ready, key_free = key_barriers
    value_ready, value_free = value_barriers
    scores: gl.constexpr = matrix_of(BLOCK_N)
    of_queries: gl.constexpr = matrix_of(HEAD_PAD)
    by_query: gl.constexpr = gl.SliceLayout(1, scores)
    changes: gl.constexpr = gl.DotOperandLayout(0, of_queries, 2)
    dtype: gl.constexpr = keys.dtype
    _rows, _batch_heads, heads, _group, kv_len, q_len, padded = shape
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, scores)
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    start, stop, step = rows_of_program(shape, HELD > 1)
    for w in range(start, stop, step):
        batch, head, q0, q1 = _queries(w, shape, CONSUMERS, HEADS_TOGETHER)
        place, held_phase = stage_of(done, HELD)
        query = queries.index(place * CONSUMERS + C).reshape([ROWS, HEAD_PAD])
        gradient = gradients.index(place * CONSUMERS + C).reshape([ROWS, VALUE_PAD])
        m = rows_from(q0 + C * ROWS, BLOCK_N)
        base = (batch * heads + head).to(gl.int64)
        if NORMALISED:
            begin = first_row(batch, head, heads, q_len, head_step)
            of_head = o_ptr + begin * VALUE_DIM
            out = _output_rows(of_head, q0 + C * ROWS, q_len, row_step, VALUE_DIM, VALUE_PAD)
        dq = gl.zeros([ROWS, HEAD_PAD], gl.float32, of_queries)

        at = (batch, head, m[:, None], kv_len)
        known, unit = HOLD(batch, head, m[:, None], kv_len, scale, S, T)
        mbarrier.wait(held_ready.index(place), held_phase)
        done += 1
        if NORMALISED:
            dots = _dots(out, gradient, by_query)
            statistic, delta = statistics_of(
                dots, lse_ptr, sink_ptr, grad_lse_ptr, head, base * q_len, m, q_len, WEIGHTED
            )
            numbers = (statistic[:, None], delta[:, None])
        else:
            dots = gl.zeros([ROWS], gl.float32, by_query)
            statistic, delta = statistics_of(dots, None, None, None, head, base, m, q_len, WEIGHTED)
            numbers = (None, None)
        targets = (statistic_ptr, delta_ptr)
        store_statistics(statistic, delta, targets, base * padded, m, padded)
        if C == 0:
            if q1 == q_len - 1:
                past = q0 + CONSUMERS * ROWS + gl.arange(0, PADDED_BLOCK, _past_layout)
                store_nothing(targets, base * padded, past, padded, WEIGHTED)
        j, end, partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        # With OVERLAP the last product of a tile is issued after the first two of the next.
        if OVERLAP:
            if j < NO_TILE:
                stage, phase = stage_of(i, STAGES)
                mbarrier.wait(key_ready.index(stage), phase)
                key = keys.index(stage).reshape([BLOCK_N, HEAD_PAD])
                product = warpgroup_mma(
                    query, key.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                mbarrier.wait(value_ready.index(stage), phase)
                value = values.index(stage).reshape([BLOCK_N, VALUE_PAD])
                dp = warpgroup_mma(
                    gradient, value.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                ds = _changes(
                    product, dp, 0, value_free.index(stage), numbers, at, j, partial, S,
                    known, unit, MASKED, BIASED, SLOPE, BLOCK_N, WEIGHTED, NORMALISED,
                )  # fmt: skip
                change = gl.convert_layout(ds.to(dtype), changes)
                i += 1
                j += 1
                if j == end:
                    j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
                while j < NO_TILE:
                    before = (i - 1) % STAGES
                    stage, phase = stage_of(i, STAGES)
                    mbarrier.wait(key_ready.index(stage), phase)
                    key = keys.index(stage).reshape([BLOCK_N, HEAD_PAD])
                    product = warpgroup_mma(
                        query, key.permute((1, 0)), zero, use_acc=False, is_async=True
                    )
                    mbarrier.wait(value_ready.index(stage), phase)
                    value = values.index(stage).reshape([BLOCK_N, VALUE_PAD])
                    dp = warpgroup_mma(
                        gradient, value.permute((1, 0)), zero, use_acc=False, is_async=True
                    )
                    key = keys.index(before).reshape([BLOCK_N, HEAD_PAD])
                    dq = warpgroup_mma(change, key, dq, is_async=True)
                    ds = _changes(
                        product, dp, 1, value_free.index(stage), numbers, at, j, partial, S,
                        known, unit, MASKED, BIASED, SLOPE, BLOCK_N, WEIGHTED, NORMALISED,
                    )  # fmt: skip
                    dq = warpgroup_mma_wait(0, deps=[dq])
                    release(key_free.index(before))
                    change = gl.convert_layout(ds.to(dtype), changes)
                    i += 1
                    j += 1
                    if j == end:
                        j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
                before = (i - 1) % STAGES
                key = keys.index(before).reshape([BLOCK_N, HEAD_PAD])
                dq = warpgroup_mma(change, key, dq, is_async=True)
                dq = warpgroup_mma_wait(0, deps=[dq])
                release(key_free.index(before))
        else:
            while j < NO_TILE:
                stage, phase = stage_of(i, STAGES)
                mbarrier.wait(key_ready.index(stage), phase)
                key = keys.index(stage).reshape([BLOCK_N, HEAD_PAD])
                product = warpgroup_mma(
                    query, key.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                mbarrier.wait(value_ready.index(stage), phase)
                value = values.index(stage).reshape([BLOCK_N, VALUE_PAD])
                dp = warpgroup_mma(
                    gradient, value.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                ds = _changes(
                    product, dp, 0, value_free.index(stage), numbers, at, j, partial, S,
                    known, unit, MASKED, BIASED, SLOPE, BLOCK_N, WEIGHTED, NORMALISED,
                )  # fmt: skip
                change = gl.convert_layout(ds.to(dtype), changes)
                dq = warpgroup_mma(change, key, dq, is_async=True)
                dq = warpgroup_mma_wait(0, deps=[dq])
                release(key_free.index(stage))
                i += 1
                j += 1
                if j == end:
                    j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)

        # No other consumer reads these queries, and this one is past its products.
        barrier()
        query.store((dq * scale).to(dtype))
        fence_async_shared()
        barrier()
        copy_to_global(
            target, [batch, head, q0 + C * ROWS, 0], queries.index(place * CONSUMERS + C)
        )
        tma.store_wait(0)
        release(held_free.index(place))


@gluon.jit(
    do_not_specialize=[
        "q_len", "kv_len", "padded", "rows", "batch_heads", "head_step", "row_step", *SCALARS,
    ]
)  # fmt: skip
def hopper_backward_queries(
    q_desc,
    k_desc,
    v_desc,
    g_desc,
    o_ptr,
    lse_ptr,
    sink_ptr,
    grad_lse_ptr,
    statistic_ptr,
    delta_ptr,
    dq_desc,
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
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: gl.constexpr,
    TABLES: gl.constexpr,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    SLOPE: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_DIM: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    OVERLAP: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    HELD: gl.constexpr,
):  # fmt: skip
    """dQ of CONSUMERS x 64 queries of one head.

    q, k, v, g (dO) and dq are tensor descriptors of `[batch, heads, length, dim]` in blocks of 64
    queries or BLOCK keys; o and what is known of queries as of `backward_queries`. Options,
    WEIGHTED and NORMALISED as of `hopper_backward_keys`.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    dtype: gl.constexpr = q_desc.dtype
    places: gl.constexpr = HELD * CONSUMERS
    queries = gl.allocate_shared_memory(dtype, [places, 1, 1, ROWS, HEAD_PAD], q_desc.layout)
    gradients = gl.allocate_shared_memory(dtype, [places, 1, 1, ROWS, VALUE_PAD], g_desc.layout)
    keys = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, HEAD_PAD], k_desc.layout)
    values = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, VALUE_PAD], v_desc.layout)
    held_barriers = ring_of_barriers(HELD, CONSUMERS)
    key_barriers = ring_of_barriers(STAGES, CONSUMERS)
    value_barriers = ring_of_barriers(STAGES, CONSUMERS)
    fence_async_shared()

    sources = (q_desc, k_desc, v_desc, g_desc)
    of_rows = (
        o_ptr,
        head_step,
        row_step,
        lse_ptr,
        sink_ptr,
        grad_lse_ptr,
        statistic_ptr,
        delta_ptr,
    )
    held = (queries, gradients)
    rings = (keys, values)
    shape = (rows, batch_heads, heads, group, kv_len, q_len, padded)
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume_keys, (
                    0, dq_desc, of_rows, held, rings, held_barriers, key_barriers, value_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_DIM,
                    VALUE_PAD, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, OVERLAP, WEIGHTED,
                    NORMALISED, HELD,
                )),
                (_produce_keys, (
                    sources, held, rings, held_barriers, key_barriers, value_barriers, shape, S, T,
                    NEXT_RUN, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, HELD,
                )),
            ],
            [1],
            [24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume_keys, (
                    0, dq_desc, of_rows, held, rings, held_barriers, key_barriers, value_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_DIM,
                    VALUE_PAD, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, OVERLAP, WEIGHTED,
                    NORMALISED, HELD,
                )),
                (_consume_keys, (
                    1, dq_desc, of_rows, held, rings, held_barriers, key_barriers, value_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_DIM,
                    VALUE_PAD, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, OVERLAP, WEIGHTED,
                    NORMALISED, HELD,
                )),
                (_produce_keys, (
                    sources, held, rings, held_barriers, key_barriers, value_barriers, shape, S, T,
                    NEXT_RUN, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, HELD,
                )),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
