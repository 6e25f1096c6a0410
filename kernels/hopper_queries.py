"""dQ on Hopper, in Gluon: the sums of `backward`, by warps that load and warps that compute.

As in `hopper_forward` a producer warp fills rings of tiles by the tensor memory accelerator. A
consumer holds 64 queries and their output gradients against tiles of keys and values.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)

from .backward import PADDED_BLOCK, first_row, statistics_of, store_nothing, store_statistics
from .elements import SCALARS, Hooks, Place, score_gradient, weights_of_gradient
from .gluon_names import barrier
from .hopper_common import (
    ROWS,
    Call,
    Options,
    Ring,
    barriers_of,
    block_at,
    columns_from,
    key_of_tile,
    matrix_of,
    memory_of,
    produce_keys,
    queries_of_row,
    release,
    rows_from,
    specialise,
    stage_of,
    store_block,
    value_of_tile,
    wait_until_filled,
)
from .hopper_parts import (
    add_rows,
    dots,
    no_sums,
    operand_of,
    products_of,
    rows_of,
    store_sums,
    sums_of,
    wait_for,
)
from .hopper_rows import Drawn, memory_of_rows, row_drawn
from .runs import NO_TILE, first_tile, next_tile

_past_layout = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


class Program(NamedTuple):
    """State shared by the warps of a program; the ring `held` holds queries and gradients."""

    call: Call
    q_desc: gl.tensor
    k_desc: gl.tensor
    v_desc: gl.tensor
    g_desc: gl.tensor
    dq_desc: gl.tensor
    o_ptr: gl.tensor
    head_step: gl.tensor
    row_step: gl.tensor
    lse_ptr: gl.tensor
    sink_ptr: gl.tensor
    grad_lse_ptr: gl.tensor
    statistic_ptr: gl.tensor
    delta_ptr: gl.tensor
    held: Ring
    keys: Ring
    vals: Ring
    drawn: Drawn


class Row(NamedTuple):
    """A consumer's 64 queries of a row of tiles, with their statistics; kv_idx of `place` is not
    set yet."""

    place: Place
    unit: gl.tensor
    statistic: gl.tensor
    delta: gl.tensor
    query: gl.tuple
    gradient: gl.tuple
    zero: gl.tensor


@gluon.constexpr_function
def _rows_of_output(columns):
    """The layout of 64 rows of the output: 16 bytes a thread at a time, 16 rows a warp."""
    return gl.BlockedLayout([columns // 16, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def _output_columns(o_ptr, first, q_len, row_step, column, side, VALUE_DIM: gl.constexpr):
    layout: gl.constexpr = _rows_of_output(side.shape[1])
    rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))[:, None]
    columns = column + gl.arange(0, side.shape[1], gl.SliceLayout(0, layout))[None, :]
    inside = (rows < q_len) & (columns < VALUE_DIM)
    at = rows.to(gl.int64) * row_step * VALUE_DIM + columns
    return gl.load(o_ptr + at, mask=inside, other=0.0)


@gluon.jit
def _output_rows(o_ptr, first, q_len, row_step, gradient, VALUE_DIM: gl.constexpr):
    """64 rows of the output of one head, zero past the length; in parts as their gradient is."""
    out = ()
    for place in gl.static_range(len(gradient)):
        column = place * gradient[0].shape[1]
        each = _output_columns(o_ptr, first, q_len, row_step, column, gradient[place], VALUE_DIM)
        out = out + (each,)
    return out


@gluon.jit
def _dots_within(out, gradient, layout: gl.constexpr):
    same = gradient.load(out.type.layout)
    return gl.convert_layout(gl.sum(out.to(gl.float32) * same.to(gl.float32), 1), layout)


@gluon.jit
def _dots(out, gradient, layout: gl.constexpr):
    """dO . O of 64 queries, from rows of the output and the memory of dO."""
    total = _dots_within(out[0], gradient[0], layout)
    for place in gl.static_range(1, len(out)):
        total += _dots_within(out[place], gradient[place], layout)
    return total


@gluon.jit
def _products(i, row, program, options):
    """The i-th tile's products q . k and dO . v, under way."""
    stage = wait_until_filled(program.keys, key_of_tile(i, options))
    key = block_at(program.keys.memory, stage)
    product = dots(row.query, key, row.zero, options.HEAD_DIM)
    stage = wait_until_filled(program.vals, value_of_tile(i, options))
    value = block_at(program.vals.memory, stage)
    return product, dots(row.gradient, value, row.zero, options.VALUE_DIM)


@gluon.jit
def _changes(i, product, dp, PENDING: gl.constexpr, run, row, program, options):
    """The gradient of a tile of scores from products under way, followed by PENDING others."""
    place = row.place
    kv_idx = columns_from(run.tile * options.BLOCK, options.BLOCK, options.LOOKED_UP)
    at = Place(place.batch, place.head, place.q_idx, kv_idx, place.kv_len, place.S, place.T)
    OF_VALUES: gl.constexpr = products_of(options.VALUE_DIM)
    product = warpgroup_mma_wait(PENDING + OF_VALUES, deps=[product])
    p, slope = weights_of_gradient(product, row.statistic, at, row.unit, options.hooks, run.partial)
    dp = warpgroup_mma_wait(PENDING, deps=[dp])
    stage, _phase = stage_of(program.vals, value_of_tile(i, options))
    release(program.vals.free.index(stage))
    return score_gradient(
        product, p, slope, dp, row.delta, row.statistic, at, options.hooks, run.partial
    )


@gluon.jit
def _add(i, change, dq, keys, options):
    """dQ plus the i-th tile's part, under way."""
    stage, _phase = stage_of(keys, key_of_tile(i, options))
    return add_rows(dq, change, block_at(keys.memory, stage), options.HEAD_DIM)


@gluon.jit
def _added(i, dq, keys, options):
    """dQ once the i-th tile's part is added; its keys are released."""
    dq = wait_for(dq)
    stage, _phase = stage_of(keys, key_of_tile(i, options))
    release(keys.free.index(stage))
    return dq


@gluon.jit
def _consume_row(C: gl.constexpr, w, i, done, program, options):
    """Consumer C: dQ of its 64 queries of the w-th row, after `done` other rows, from each tile of
    keys of its runs. Returns the number of tiles so far."""
    call, held, keys = program.call, program.held, program.keys
    kv_len, q_len, padded, S = call.kv_len, call.q_len, call.padded, call.S
    NEXT_RUN: gl.constexpr = options.hooks.NEXT_RUN
    WEIGHTED: gl.constexpr = options.hooks.WEIGHTED
    BLOCK: gl.constexpr = options.BLOCK
    scores: gl.constexpr = matrix_of(BLOCK)
    by_query: gl.constexpr = gl.SliceLayout(1, scores)
    dtype: gl.constexpr = program.k_desc.dtype
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    span, _ = queries_of_row(w, call, options)
    batch, head, q0 = span.batch, span.head, span.first + C * ROWS
    at, _phase = stage_of(held, done)
    mine = at * options.CONSUMERS + C
    query, gradient = block_at(held.memory, mine), block_at(held.beside, mine)
    queries, gradients = rows_of(query, options.HEAD_DIM), rows_of(gradient, options.VALUE_DIM)
    m = rows_from(q0, BLOCK)
    base = (batch * call.heads + head).to(gl.int64)
    if options.NORMALISED:
        begin = first_row(batch, head, call.heads, q_len, program.head_step)
        of_head = program.o_ptr + begin * options.VALUE_DIM
        out = _output_rows(of_head, q0, q_len, program.row_step, gradient, options.VALUE_DIM)
    dq = no_sums(options.HEAD_DIM)

    known, unit = options.hooks.HOLD(batch, head, m[:, None], kv_len, call.scale, S, call.T)
    place = Place(batch, head, m[:, None], None, kv_len, S, known)
    wait_until_filled(held, done)
    if options.NORMALISED:
        dots = _dots(out, gradient, by_query)
        statistic, delta = statistics_of(
            dots, program.lse_ptr, program.sink_ptr, program.grad_lse_ptr, head, base * q_len,
            m, q_len, WEIGHTED,
        )  # fmt: skip
        row = Row(place, unit, statistic[:, None], delta[:, None], queries, gradients, zero)
    else:
        dots = gl.zeros([ROWS], gl.float32, by_query)
        statistic, delta = statistics_of(dots, None, None, None, head, base, m, q_len, WEIGHTED)
        row = Row(place, unit, None, None, queries, gradients, zero)
    targets = (program.statistic_ptr, program.delta_ptr)
    store_statistics(statistic, delta, targets, base * padded, m, padded)
    if C == 0:
        if span.last == q_len - 1:
            past = q0 + options.CONSUMERS * ROWS + gl.arange(0, PADDED_BLOCK, _past_layout)
            store_nothing(targets, base * padded, past, padded, WEIGHTED)
    run = first_tile(span, NEXT_RUN, BLOCK)
    # With OVERLAP the last product of a tile is issued after the first two of the next.
    if options.OVERLAP:
        if run.tile < NO_TILE:
            product, dp = _products(i, row, program, options)
            ds = _changes(i, product, dp, 0, run, row, program, options)
            change = operand_of(ds, dtype, options.HEAD_DIM)
            i += 1
            run = next_tile(run, span, NEXT_RUN, BLOCK)
            while run.tile < NO_TILE:
                product, dp = _products(i, row, program, options)
                dq = _add(i - 1, change, dq, keys, options)
                SUMS: gl.constexpr = sums_of(options.HEAD_DIM)
                ds = _changes(i, product, dp, SUMS, run, row, program, options)
                dq = _added(i - 1, dq, keys, options)
                change = operand_of(ds, dtype, options.HEAD_DIM)
                i += 1
                run = next_tile(run, span, NEXT_RUN, BLOCK)
            dq = _added(i - 1, _add(i - 1, change, dq, keys, options), keys, options)
    else:
        while run.tile < NO_TILE:
            product, dp = _products(i, row, program, options)
            ds = _changes(i, product, dp, 0, run, row, program, options)
            dq = _added(i, _add(i, ds, dq, keys, options), keys, options)
            i += 1
            run = next_tile(run, span, NEXT_RUN, BLOCK)

    # No other consumer reads these queries, and this one is past its products.
    barrier()
    store_sums(query, dq, call.scale, options.HEAD_DIM)
    fence_async_shared()
    barrier()
    store_block(program.dq_desc, [batch, head, q0, 0], held.memory, mine)
    tma.store_wait(0)
    release(held.free.index(at))
    return i


@gluon.jit
def _consume_keys(C: gl.constexpr, program, options):
    """Consumer C: dQ of its 64 queries of every row of the program."""
    w = gl.program_id(0)
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    if not options.PERSISTENT:
        _consume_row(C, w, i, done, program, options)
    else:
        while w < program.call.rows * program.call.batch_heads:
            i = _consume_row(C, w, i, done, program, options)
            w = row_drawn(done, program.drawn)
            done += 1


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
    counter_ptr,
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
    LOOKED_UP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    VALUE_DIM: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    OVERLAP: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    HELD: gl.constexpr,
    ONE_RING: gl.constexpr,
):  # fmt: skip
    """dQ of CONSUMERS x 64 queries of one head.

    q, k, v, g (dO) and dq are tensor descriptors of `[batch, heads, length, dim]` in blocks of 64
    queries or BLOCK keys; o and the statistics of queries as in `backward_queries`. Options,
    WEIGHTED and NORMALISED as in `hopper_backward_keys`. In ONE_RING of stages, for equal padded
    dimensions, keys and values take turns: three stages hide loads where four do not fit.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    queries = memory_of(q_desc, HELD * CONSUMERS, HEAD_PAD)
    gradients = memory_of(g_desc, HELD * CONSUMERS, VALUE_PAD)
    keys = memory_of(k_desc, STAGES, HEAD_PAD)
    held_ready, held_free = barriers_of(HELD, CONSUMERS)
    key_ready, key_free = barriers_of(STAGES, CONSUMERS)
    if ONE_RING:
        vals, value_ready, value_free = keys, key_ready, key_free
    else:
        vals = memory_of(v_desc, STAGES, VALUE_PAD)
        value_ready, value_free = barriers_of(STAGES, CONSUMERS)
    drawn = memory_of_rows(counter_ptr) if HELD > 1 else None
    fence_async_shared()
    specialise(
        _consume_keys,
        produce_keys,
        CONSUMERS,
        (240, 24),
        Program(
            Call(rows, batch_heads, heads, group, q_len, kv_len, padded, scale, S, T),
            q_desc, k_desc, v_desc, g_desc, dq_desc, o_ptr, head_step, row_step, lse_ptr, sink_ptr,
            grad_lse_ptr, statistic_ptr, delta_ptr,
            Ring(queries, gradients, held_ready, held_free), Ring(keys, None, key_ready, key_free),
            Ring(vals, None, value_ready, value_free),
            drawn,
        ),
        Options(
            Hooks(HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, WEIGHTED), HEAD_PAD, VALUE_PAD, BLOCK,
            CONSUMERS, HEADS_TOGETHER, HELD > 1, NORMALISED, OVERLAP, HEAD_DIM=HEAD_DIM,
            VALUE_DIM=VALUE_DIM, ONE_RING=ONE_RING, LOOKED_UP=LOOKED_UP,
        ),
    )  # fmt: skip
