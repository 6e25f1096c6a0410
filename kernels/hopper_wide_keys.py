"""dK and dV of wide heads on Hopper, in Gluon: one consumer makes dV, the other dK.

Sums of 64 keys of 256 dimensions take half the registers of four warps, so that no consumer has
room for both. The first makes scores, weights and dV, and hands over the factors of the gradients
of weights. The second makes dO . v, the gradients of scores, and dK. Both make equally many
products, and one's products hide the other's arithmetic.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from .elements import SCALARS, Hooks, Place, factors_of_gradient
from .gluon_names import barrier, barrier_to_arrive
from .hopper_common import (
    ROWS,
    Call,
    Options,
    Ring,
    barriers_of,
    block_at,
    columns_from,
    matrix_of,
    memory_of,
    release,
    rows_from,
    specialise,
    stage_of,
    store_block,
    wait_until_filled,
)
from .hopper_keys import Program, first_of_part, keys_of_program, produce_queries
from .hopper_parts import (
    add_rows,
    dots,
    no_sums,
    products_of,
    rows_of,
    store_part,
    store_sums,
    wait_for,
)
from .runs import NO_TILE, Span, first_tile, next_tile

CONSUMERS = gl.constexpr(2)
_factor_layout = gl.constexpr(gl.NVMMASharedLayout(128, 16, rank=2))


@gluon.jit
def _leave(ring, i, pred=True):
    """Give back the stage of the i-th tile, once every warp is past its reads."""
    stage, _phase = stage_of(ring, i)
    barrier_to_arrive()
    mbarrier.arrive(ring.free.index(stage), count=1, pred=pred)


@gluon.jit
def _dots_ahead(held, ring, i, more, zero, SIZE: gl.constexpr):
    """Products of the held tile with the i-th tile, under way; without `more`, with any tile.

    A product cannot be under way on one side of a branch alone.
    """
    stage, phase = stage_of(ring, i)
    mbarrier.wait(ring.ready.index(stage), phase, pred=more)
    return dots(held, block_at(ring.memory, stage), zero, SIZE)


@gluon.jit
def _make_values(program, options):
    """The consumer of scores: dV of 64 keys.

    Scores of the next tile are under way beside the product of a tile's weights.
    """
    call, held, factors = program.call, program.held, program.one_pass
    queries, gradients = program.queries, program.gradients
    S, kv_len, q_len = call.S, call.kv_len, call.q_len
    BLOCK: gl.constexpr = options.BLOCK
    HEAD_DIM: gl.constexpr = options.HEAD_DIM
    scores: gl.constexpr = matrix_of(BLOCK)
    by_query: gl.constexpr = gl.SliceLayout(0, scores)
    dtype: gl.constexpr = program.k_desc.dtype
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    batch, part, k0, k1 = keys_of_program(gl.program_id(0), call, options)
    kv_idx = rows_from(k0, BLOCK)[:, None]
    dv = no_sums(options.VALUE_DIM)
    i = gl.to_tensor(0)
    wait_until_filled(held, 0)
    key = rows_of(block_at(held.memory, 0), HEAD_DIM)
    for g in range(0, call.group):
        head = part * call.group + g
        known, unit = options.hooks.HOLD(batch, head, kv_idx, kv_len, call.scale, S, call.T)
        span = Span(k0, k1, batch, head, q_len, S, call.T)
        run = first_tile(span, options.hooks.NEXT_RUN, BLOCK)
        more = run.tile < NO_TILE
        product = warpgroup_mma_wait(0, deps=[_dots_ahead(key, queries, i, more, zero, HEAD_DIM)])
        while run.tile < NO_TILE:
            stage, _phase = stage_of(queries, i)
            statistic = None
            if options.NORMALISED:
                statistic = queries.beside.index(stage).load(by_query)[None, :]
            q_idx = columns_from(run.tile * BLOCK, BLOCK, options.LOOKED_UP)
            at = Place(batch, head, q_idx, kv_idx, kv_len, S, known)
            p, factor = factors_of_gradient(
                product, statistic, at, unit, options.hooks, run.partial
            )
            slot, phase = stage_of(factors, i)
            mbarrier.wait(factors.free.index(slot), phase ^ 1)
            factors.memory.index(slot).store(factor.to(dtype))
            barrier_to_arrive()
            mbarrier.arrive(factors.ready.index(slot), count=1)
            mbarrier.arrive(queries.free.index(stage), count=1)
            run = next_tile(run, span, options.hooks.NEXT_RUN, BLOCK)
            wait_until_filled(gradients, i)
            dv = add_rows(dv, p, block_at(gradients.memory, stage), options.VALUE_DIM)
            i += 1
            product = _dots_ahead(key, queries, i, run.tile < NO_TILE, zero, HEAD_DIM)
            dv = wait_for(dv, products_of(HEAD_DIM))
            _leave(gradients, i - 1)
            product = warpgroup_mma_wait(0, deps=[product])

    if program.value_part_ptr is None:
        # The other consumer is past its products with these values.
        release(held.free.index(0))
        mbarrier.wait(held.free.index(0), 0)
        store_sums(block_at(held.beside, 0), dv, 1.0, options.VALUE_DIM)
        fence_async_shared()
        barrier()
        store_block(program.dv_desc, [batch, part, k0, 0], held.beside, 0)
        tma.store_wait(0)
    else:
        first = first_of_part(batch, part, call) + k0
        store_part(program.value_part_ptr, dv, 1.0, first, kv_len - k0, options.VALUE_DIM)


@gluon.jit
def _make_keys(program, options):
    """The consumer of dO . v: dK of 64 keys; likewise with dO . v of the next tile."""
    call, held, factors = program.call, program.held, program.one_pass
    queries, gradients = program.queries, program.gradients
    BLOCK: gl.constexpr = options.BLOCK
    VALUE_DIM: gl.constexpr = options.VALUE_DIM
    scores: gl.constexpr = matrix_of(BLOCK)
    by_query: gl.constexpr = gl.SliceLayout(0, scores)
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    batch, part, k0, k1 = keys_of_program(gl.program_id(0), call, options)
    dk = no_sums(options.HEAD_DIM)
    i = gl.to_tensor(0)
    wait_until_filled(held, 0)
    value = rows_of(block_at(held.beside, 0), VALUE_DIM)
    for g in range(0, call.group):
        span = Span(k0, k1, batch, part * call.group + g, call.q_len, call.S, call.T)
        run = first_tile(span, options.hooks.NEXT_RUN, BLOCK)
        more = run.tile < NO_TILE
        dp = warpgroup_mma_wait(0, deps=[_dots_ahead(value, gradients, i, more, zero, VALUE_DIM)])
        while run.tile < NO_TILE:
            stage, _phase = stage_of(gradients, i)
            slot = wait_until_filled(factors, i)
            factor = factors.memory.index(slot).load(scores).to(gl.float32)
            if options.NORMALISED:
                dp = dp - gradients.beside.index(stage).load(by_query)[None, :]
            barrier_to_arrive()
            mbarrier.arrive(factors.free.index(slot), count=1)
            mbarrier.arrive(gradients.free.index(stage), count=1)
            run = next_tile(run, span, options.hooks.NEXT_RUN, BLOCK)
            wait_until_filled(queries, i)
            dk = add_rows(dk, factor * dp, block_at(queries.memory, stage), options.HEAD_DIM)
            i += 1
            dp = _dots_ahead(value, gradients, i, run.tile < NO_TILE, zero, VALUE_DIM)
            dk = wait_for(dk, products_of(VALUE_DIM))
            _leave(queries, i - 1)
            dp = warpgroup_mma_wait(0, deps=[dp])

    if program.key_part_ptr is None:
        release(held.free.index(0))
        mbarrier.wait(held.free.index(0), 0)
        store_sums(block_at(held.memory, 0), dk, call.scale, options.HEAD_DIM)
        fence_async_shared()
        barrier()
        store_block(program.dk_desc, [batch, part, k0, 0], held.memory, 0)
        tma.store_wait(0)
    else:
        first, count = first_of_part(batch, part, call) + k0, call.kv_len - k0
        store_part(program.key_part_ptr, dk, call.scale, first, count, options.HEAD_DIM)


@gluon.jit
def _consume(C: gl.constexpr, program, options):
    if C == 0:
        _make_values(program, options)
    else:
        _make_keys(program, options)


@gluon.jit(
    do_not_specialize=["q_len", "kv_len", "padded", "rows", "batch_heads", "parts", *SCALARS]
)
def hopper_backward_wide_keys(
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
    HEADS_TOGETHER: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
):  # fmt: skip
    """dK and dV of 64 keys of one key-value head; arguments as of `hopper_backward_keys`."""
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    keys = memory_of(k_desc, 1, HEAD_PAD)
    vals = memory_of(v_desc, 1, VALUE_PAD)
    queries = memory_of(q_desc, STAGES, HEAD_PAD)
    gradients = memory_of(g_desc, STAGES, VALUE_PAD)
    statistics = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], statistic_desc.layout)
    deltas = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], delta_desc.layout)
    factors = gl.allocate_shared_memory(q_desc.dtype, [2, ROWS, BLOCK], _factor_layout)
    held_ready, held_free = barriers_of(1, CONSUMERS)
    query_ready, query_free = barriers_of(STAGES, CONSUMERS)
    gradient_ready, gradient_free = barriers_of(STAGES, CONSUMERS)
    factor_ready, factor_free = barriers_of(2, 1)
    fence_async_shared()
    specialise(
        _consume,
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
            Ring(factors, None, factor_ready, factor_free),
            None, key_part_ptr, value_part_ptr,
        ),
        # A program has one tile of 64 keys, as of one consumer.
        Options(
            Hooks(HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, WEIGHTED), HEAD_PAD, VALUE_PAD, BLOCK,
            1, HEADS_TOGETHER, False, NORMALISED, HEAD_DIM=HEAD_DIM, VALUE_DIM=VALUE_DIM,
            LOOKED_UP=LOOKED_UP,
        ),
    )  # fmt: skip
