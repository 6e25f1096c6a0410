"""dK and dV on Hopper, in Gluon: the sums of `backward`, by warps that load and warps that compute.

As in `hopper_forward` a producer warp fills rings of tiles by the tensor memory accelerator. A
consumer holds 64 keys and their values against tiles of queries and output gradients.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)

from .elements import SCALARS, Hooks, Place, score_gradient, weights_of_gradient
from .forward import tile_of_program
from .gluon_names import barrier, copy_to_shared
from .hopper_common import (
    ROWS,
    Call,
    Options,
    Ring,
    barriers_of,
    begin_filling,
    block_at,
    bytes_of,
    columns_from,
    each_time,
    fill,
    load_block,
    matrix_of,
    memory_of,
    release,
    rows_from,
    specialise,
    store_block,
    wait_until_filled,
)
from .hopper_order import program_in_order, tile_in_order
from .hopper_parts import (
    add_rows,
    dots,
    no_sums,
    products_of,
    rows_of,
    store_part,
    store_sums,
    sums_of,
    wait_for,
)
from .hopper_rows import Drawn, draw_row, memory_of_rows, row_drawn
from .runs import NO_TILE, Span, SpanEitherWay, first_tile, next_tile

row_layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
"""The layout in shared memory of one number for each query."""


class Program(NamedTuple):
    """State shared by the warps of a program.

    Keys lie beside values in the ring `held`, queries beside statistics, and gradients beside
    deltas; in one pass, queries beside shifts, and there are no deltas.
    """

    call: Call
    q_desc: gl.tensor
    k_desc: gl.tensor
    v_desc: gl.tensor
    g_desc: gl.tensor
    statistic_desc: gl.tensor
    delta_desc: gl.tensor
    dk_desc: gl.tensor
    dv_desc: gl.tensor
    held: Ring
    queries: Ring
    gradients: Ring
    one_pass: gl.tuple = None
    drawn: Drawn = None
    key_part_ptr: gl.tensor = None
    value_part_ptr: gl.tensor = None


@gluon.jit
def keys_of_program(w, call, options):
    """Batch and part of the heads of the w-th tile of keys, its first key and its last."""
    row, batch_head = tile_of_program(w, call.rows, call.batch_heads, options.HEADS_TOGETHER)
    KEYS: gl.constexpr = options.CONSUMERS * ROWS
    # The first keys are the longest under every causal mask.
    k0 = (call.rows - 1 - row) * KEYS
    k1 = gl.minimum(k0 + KEYS, call.kv_len) - 1
    return batch_head // call.heads, batch_head % call.heads, k0, k1


@gluon.jit
def first_of_part(batch, part, call):
    """The first row of a part of the heads among the sums of all parts."""
    return (batch * call.heads + part).to(gl.int64) * call.kv_len


@gluon.jit
def _produce_row(w, i, done, program, options):
    """Load keys and values of the w-th row, after `done` other rows, then queries and gradients of
    a group of heads. Returns the number of tiles so far."""
    NEXT_RUN: gl.constexpr = options.hooks.NEXT_RUN
    BLOCK: gl.constexpr = options.BLOCK
    CONSUMERS: gl.constexpr = options.CONSUMERS
    call, held, group, q_len = program.call, program.held, program.call.group, program.call.q_len
    queries, gradients = program.queries, program.gradients
    HELD_BYTES: gl.constexpr = CONSUMERS * (bytes_of(held.memory) + bytes_of(held.beside))
    QUERY_BYTES: gl.constexpr = bytes_of(queries.memory) + program.statistic_desc.block_type.nbytes
    if not options.ONE_PASS:
        batch, part, k0, k1 = keys_of_program(w, call, options)
        kv_head, first_head, members = part // call.parts, part * group, group
    else:
        batch, first_head, k0, k1, from_last = program_in_order(program)
        kv_head, members = first_head // group, program.one_pass.members
    place, ready = begin_filling(held, done, HELD_BYTES)
    for c in gl.static_range(CONSUMERS):
        first = [batch, kv_head, k0 + c * ROWS, 0]
        at = place * CONSUMERS + c
        load_block(program.k_desc, first, ready, held.memory, at)
        load_block(program.v_desc, first, ready, held.beside, at)
    for head in range(first_head, first_head + members):
        row = (batch * call.heads * group + head) * call.padded
        if not options.ONE_PASS:
            span = Span(k0, k1, batch, head, q_len, call.S, call.T)
        else:
            span = SpanEitherWay(from_last, k0, k1, batch, head, q_len, call.S, call.T)
        run = first_tile(span, NEXT_RUN, BLOCK)
        while run.tile < NO_TILE:
            if not options.ONE_PASS:
                m = run.tile * BLOCK
            else:
                m = tile_in_order(run.tile, from_last, q_len, BLOCK) * BLOCK
            first = [batch, head, m, 0]
            stage, ready = begin_filling(queries, i, QUERY_BYTES)
            load_block(program.q_desc, first, ready, queries.memory, stage)
            if not options.ONE_PASS:
                first_row = [row + m]
                of_query = queries.beside.index(stage)
                copy_to_shared(program.statistic_desc, first_row, ready, of_query)
                GRADIENT_BYTES: gl.constexpr = (
                    bytes_of(gradients.memory) + program.delta_desc.block_type.nbytes
                )
                stage, ready = begin_filling(gradients, i, GRADIENT_BYTES)
                of_query = gradients.beside.index(stage)
                copy_to_shared(program.delta_desc, first_row, ready, of_query)
                load_block(program.g_desc, first, ready, gradients.memory, stage)
            else:
                of_query = queries.beside.index(stage)
                copy_to_shared(program.statistic_desc, [row + m, 0], ready, of_query)
                fill(gradients, i, program.g_desc, first)
            i += 1
            run = next_tile(run, span, NEXT_RUN, BLOCK)
    return i


@gluon.jit
def produce_queries(program, options):
    """The producer: every row of the program."""
    w = gl.program_id(0)
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    if not options.PERSISTENT:
        _produce_row(w, i, done, program, options)
    else:
        total = program.call.rows * program.call.batch_heads
        while w < total:
            i = _produce_row(w, i, done, program, options)
            w = draw_row(done, total, program.drawn)
            done += 1


@gluon.jit
def _consume_row(C: gl.constexpr, w, i, done, program, options):
    """Consumer C: dK and dV of its 64 keys of the w-th row, after `done` other rows, from each tile
    of queries of its runs. Returns the number of tiles so far."""
    call, held = program.call, program.held
    queries, gradients = program.queries, program.gradients
    S, kv_len, q_len = call.S, call.kv_len, call.q_len
    BLOCK: gl.constexpr = options.BLOCK
    scores: gl.constexpr = matrix_of(BLOCK)
    by_query: gl.constexpr = gl.SliceLayout(0, scores)
    # If there are registers for it, statistics of queries are read while their product is made.
    EARLY: gl.constexpr = (
        options.hooks.BIASED is None and options.HEAD_PAD == 128 and options.CONSUMERS == 2
    )
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    batch, part, k0, k1 = keys_of_program(w, call, options)
    kv_idx = rows_from(k0 + C * ROWS, BLOCK)[:, None]
    dk = no_sums(options.HEAD_DIM)
    dv = no_sums(options.VALUE_DIM)

    place = wait_until_filled(held, done)
    mine = place * options.CONSUMERS + C
    for g in range(0, call.group):
        head = part * call.group + g
        known, unit = options.hooks.HOLD(batch, head, kv_idx, kv_len, call.scale, S, call.T)
        span = Span(k0, k1, batch, head, q_len, S, call.T)
        run = first_tile(span, options.hooks.NEXT_RUN, BLOCK)
        while run.tile < NO_TILE:
            held_now = mine
            if options.ANEW:
                held_now = each_time(mine, i)
            key = block_at(held.memory, held_now)
            value = block_at(held.beside, held_now)
            stage = wait_until_filled(queries, i)
            query = block_at(queries.memory, stage)
            product = dots(rows_of(key, options.HEAD_DIM), query, zero, options.HEAD_DIM)
            statistic = None
            delta = None
            if options.NORMALISED and EARLY:
                statistic = queries.beside.index(stage).load(by_query)[None, :]
            wait_until_filled(gradients, i)
            gradient = block_at(gradients.memory, stage)
            dp = dots(rows_of(value, options.VALUE_DIM), gradient, zero, options.VALUE_DIM)
            q_idx = columns_from(run.tile * BLOCK, BLOCK, options.LOOKED_UP)
            at = Place(batch, head, q_idx, kv_idx, kv_len, S, known)
            product = warpgroup_mma_wait(products_of(options.VALUE_DIM), deps=[product])
            if options.NORMALISED and not EARLY:
                statistic = queries.beside.index(stage).load(by_query)[None, :]
            p, slope = weights_of_gradient(product, statistic, at, unit, options.hooks, run.partial)
            dv = add_rows(dv, p, gradient, options.VALUE_DIM)
            dp = warpgroup_mma_wait(sums_of(options.VALUE_DIM), deps=[dp])
            if options.NORMALISED:
                delta = gradients.beside.index(stage).load(by_query)[None, :]
            ds = score_gradient(
                product, p, slope, dp, delta, statistic, at, options.hooks, run.partial
            )
            dk = add_rows(dk, ds, query, options.HEAD_DIM)
            dv = wait_for(dv, sums_of(options.HEAD_DIM))
            release(gradients.free.index(stage))
            dk = wait_for(dk)
            release(queries.free.index(stage))
            i += 1
            run = next_tile(run, span, options.hooks.NEXT_RUN, BLOCK)

    begin = k0 + C * ROWS
    if program.key_part_ptr is None:
        # No other consumer reads these keys and values, and this one is past its products.
        barrier()
        store_sums(block_at(held.memory, mine), dk, call.scale, options.HEAD_DIM)
        store_sums(block_at(held.beside, mine), dv, 1.0, options.VALUE_DIM)
        fence_async_shared()
        barrier()
        store_block(program.dk_desc, [batch, part, begin, 0], held.memory, mine)
        store_block(program.dv_desc, [batch, part, begin, 0], held.beside, mine)
        tma.store_wait(0)
    else:
        first = first_of_part(batch, part, call) + begin
        store_part(program.key_part_ptr, dk, call.scale, first, kv_len - begin, options.HEAD_DIM)
        store_part(program.value_part_ptr, dv, 1.0, first, kv_len - begin, options.VALUE_DIM)
    release(held.free.index(place))
    return i


@gluon.jit
def _consume_queries(C: gl.constexpr, program, options):
    """Consumer C: dK and dV of its 64 keys of every row of the program."""
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
    do_not_specialize=["q_len", "kv_len", "padded", "rows", "batch_heads", "parts", *SCALARS]
)
def hopper_backward_keys(
    q_desc,
    k_desc,
    v_desc,
    g_desc,
    statistic_desc,
    delta_desc,
    dk_desc,
    dv_desc,
    key_part_ptr,
    value_part_ptr,
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
    parts,
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
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    HELD: gl.constexpr,
    ANEW: gl.constexpr,
):  # fmt: skip
    """dK and dV of CONSUMERS x 64 keys of one key-value head.

    The query heads that share keys are divided into `parts` of `group` heads, `heads` in a batch,
    and a program computes one. With several parts it stores sums in key_part and value_part,
    float32 `[batch, heads, kv_len, dim]`, which `gradient_sums.sums_of_parts` adds; else they are
    None.

    q, k, v, g (dO), dk and dv are tensor descriptors of `[batch, heads, length, dim]` in blocks of
    BLOCK queries or 64 keys; statistic and delta are descriptors of what the kernel of dQ stored,
    flat, in blocks of BLOCK. WEIGHTED, the biased score is the weight itself; unless NORMALISED, z
    is 1. The options must give `maxnreg`, from which the warps' registers are dealt out: 168 for
    two consumers, 128 for one, of which two programs share a multiprocessor.

    With one place for held tiles (HELD), a program computes one row, `rows * batch_heads` in all.
    With two, as many programs as run at once draw rows from a counter that is zero before and
    after, and load the next row's keys and values while this row is computed. ANEW, values derived
    from these places are computed at each step, since registers are scarce.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    keys = memory_of(k_desc, HELD * CONSUMERS, HEAD_PAD)
    vals = memory_of(v_desc, HELD * CONSUMERS, VALUE_PAD)
    queries = memory_of(q_desc, STAGES, HEAD_PAD)
    gradients = memory_of(g_desc, STAGES, VALUE_PAD)
    statistics = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], statistic_desc.layout)
    deltas = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], delta_desc.layout)
    held_ready, held_free = barriers_of(HELD, CONSUMERS)
    query_ready, query_free = barriers_of(STAGES, CONSUMERS)
    gradient_ready, gradient_free = barriers_of(STAGES, CONSUMERS)
    drawn = memory_of_rows(counter_ptr) if HELD > 1 else None
    fence_async_shared()
    specialise(
        _consume_queries,
        produce_queries,
        CONSUMERS,
        (240, 24),
        Program(
            Call(
                rows, batch_heads, heads, group, q_len, kv_len, padded, scale, S, T, None, parts,
            ),
            q_desc, k_desc, v_desc, g_desc, statistic_desc, delta_desc, dk_desc, dv_desc,
            Ring(keys, vals, held_ready, held_free),
            Ring(queries, statistics, query_ready, query_free),
            Ring(gradients, deltas, gradient_ready, gradient_free),
            None, drawn, key_part_ptr, value_part_ptr,
        ),
        Options(
            Hooks(HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, WEIGHTED), HEAD_PAD, VALUE_PAD, BLOCK,
            CONSUMERS, HEADS_TOGETHER, HELD > 1, NORMALISED, HEAD_DIM=HEAD_DIM,
            VALUE_DIM=VALUE_DIM, ANEW=ANEW, LOOKED_UP=LOOKED_UP,
        ),
    )  # fmt: skip
