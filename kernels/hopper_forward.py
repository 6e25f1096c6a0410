"""Forward attention on Hopper, in Gluon: one warp loads, groups of four warps compute.

A row of tiles is CONSUMERS x 64 queries of one head. The producer warp copies tiles of keys and
values into two rings of stages by the tensor memory accelerator; each consumer multiplies, masks
and weighs them, with the next tile's scores under way while it works on this one's. Both walk the
runs of tiles that the hook gives, so nothing but data passes between them.
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

from .forward import SCALARS, biased, tile_of_program, weight_of
from .runs import NO_TILE

LOG2E = gl.constexpr(1.4426950408889634)
LN2 = gl.constexpr(0.6931471805599453)

ROWS = gl.constexpr(64)
"""Queries of a consumer: what one matrix instruction of a warpgroup computes."""

block_layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
"""How descriptors lay a block of half precision elements into shared memory."""


@gluon.constexpr_function
def _matrix(columns):
    """The layout of a matrix product of a warpgroup with so many columns."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16]
    )


@gluon.jit
def _slot(i, STAGES: gl.constexpr):
    """Stage of the i-th tile, and the phase in which its barriers complete."""
    return i % STAGES, (i // STAGES) & 1


@gluon.jit
def _release(barrier):
    """Give memory back once every warp of the consumer is past its reads."""
    gl.thread_barrier()
    mbarrier.arrive(barrier, count=1)


@gluon.jit
def _no_sooner(length):
    """What follows is not moved ahead of what precedes: a branch, for lengths below zero.

    NVIDIA's assembler moves a wait for products ahead of all arithmetic that would fill the time.
    """
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.lt.s32 p, $1, 0;
        again:
        @!p bra done;
        nanosleep.u32 100;
        bra again;
        done:
        mov.s32 $0, $1;
        }""",
        "=r,r",
        [gl.to_tensor(length)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _rows_of_program(shape, PERSISTENT: gl.constexpr):
    """First, last and step of the rows a program computes."""
    first = gl.program_id(0)
    if PERSISTENT:
        return first, shape[0] * shape[1], gl.num_programs(0)
    else:
        return first, first + 1, gl.to_tensor(1)


@gluon.jit
def _row(w, shape, CONSUMERS: gl.constexpr, HEADS_TOGETHER: gl.constexpr):
    """The w-th row of tiles: its batch, head, head of keys, first query and last query."""
    rows, batch_heads, heads, group, q_len = shape
    row, batch_head = tile_of_program(w, rows, batch_heads, HEADS_TOGETHER)
    head = batch_head % heads
    q0 = row * (CONSUMERS * ROWS)
    q1 = gl.minimum(q0 + CONSUMERS * ROWS, q_len) - 1
    return batch_head // heads, head, head // group, q0, q1


@gluon.jit
def _produce(
    sources,
    queries,
    keys,
    values,
    query_barriers,
    key_barriers,
    value_barriers,
    shape,
    kv_len,
    S,
    T,
    NEXT_RUN: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    PERSISTENT: gl.constexpr,
):
    """The producer: the queries of a row, then every tile of its runs, as memory becomes free."""
    q_desc, k_desc, v_desc = sources
    query_ready, query_free = query_barriers
    key_ready, key_free = key_barriers
    value_ready, value_free = value_barriers
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    first_row, last_row, step = _rows_of_program(shape, PERSISTENT)
    for w in range(first_row, last_row, step):
        batch, head, kv_head, q0, q1 = _row(w, shape, CONSUMERS, HEADS_TOGETHER)
        mbarrier.wait(query_free.index(0), (done & 1) ^ 1)
        mbarrier.expect(query_ready.index(0), CONSUMERS * q_desc.block_type.nbytes)
        for c in gl.static_range(CONSUMERS):
            first = [batch, head, q0 + c * ROWS, 0]
            tma.async_copy_global_to_shared(q_desc, first, query_ready.index(0), queries.index(c))
        done += 1
        j, end, _partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        while j < NO_TILE:
            stage, phase = _slot(i, STAGES)
            first = [batch, kv_head, j * BLOCK_N, 0]
            ready = key_ready.index(stage)
            mbarrier.wait(key_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(k_desc, first, ready, keys.index(stage))
            ready = value_ready.index(stage)
            mbarrier.wait(value_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(v_desc, first, ready, values.index(stage))
            i += 1
            j += 1
            if j == end:
                j, end, _partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)


@gluon.jit
def columns_from(first, N: gl.constexpr):
    """The positions of a tile's N columns, `[1, N]`, in the layout of its products.

    A thread's are sums of two numbers, computed here, and of constants. Left to itself the compiler
    would hold each thread's part of every column in a register of its own.
    """
    columns: gl.constexpr = gl.SliceLayout(0, _matrix(N))
    by_eight: gl.constexpr = gl.arange(0, N, columns).reshape([N // 8, 8]).type.layout
    within = first + gl.arange(0, 8, gl.SliceLayout(0, by_eight))
    within = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [within], dtype=gl.int32, is_pure=True, pack=1
    )
    eights = 8 * gl.arange(0, N // 8, gl.SliceLayout(1, by_eight))
    positions = (within[None, :] + eights[:, None]).reshape([N])
    return gl.convert_layout(positions, columns, assert_trivial=True)[None, :]


@gluon.jit
def rows_from(first, N: gl.constexpr):
    """The positions of ROWS rows of a tile of N columns, `[ROWS, 1]`; made likewise."""
    rows: gl.constexpr = gl.SliceLayout(1, _matrix(N))
    by_eight: gl.constexpr = gl.arange(0, ROWS, rows).reshape([ROWS // 16, 2, 8]).type.layout
    each: gl.constexpr = gl.SliceLayout(1, by_eight)
    warp = gl.arange(0, ROWS // 16, gl.SliceLayout(1, each))
    lane = gl.arange(0, 8, gl.SliceLayout(0, each))
    within = first + 16 * warp[:, None] + lane[None, :]
    within = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [within], dtype=gl.int32, is_pure=True, pack=1
    )
    half: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, by_eight))
    eights = (8 * gl.arange(0, 2, half))[None, :]
    positions = (gl.expand_dims(within, 1) + gl.expand_dims(eights, 2)).reshape([ROWS])
    return gl.convert_layout(positions, rows, assert_trivial=True)


@gluon.jit
def _weigh(
    score,
    m,
    j,
    partial,
    place,
    S,
    T,
    unit,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    BLOCK_N: gl.constexpr,
    WEIGHTED: gl.constexpr,
):
    """Weights of a tile of scores, the new running maximum, and the factor of older sums.

    WEIGHTED, there is no maximum, and the compiler drops products with a factor of 1.
    """
    batch, head, q_idx, kv_len = place
    kv_idx = columns_from(j * BLOCK_N, BLOCK_N)
    at = (batch, head, q_idx, kv_idx, kv_len)
    if WEIGHTED:
        weight = weight_of(score, at, S, T, unit, MASKED, BIASED, partial)
        return weight, m, gl.where(m == m, 1.0, 1.0)
    factor = unit * LOG2E
    score = biased(score, at, S, T, BIASED)
    if partial:
        score = MASKED(score, batch, head, q_idx, kv_idx, kv_len, S, T)
    m_new = gl.maximum(m, gl.max(score, 1))
    # A row without a kept key so far has m = -inf, and -inf - -inf is not a number.
    base = gl.where(m_new == float("-inf"), 0.0, m_new) * factor
    weight = gl.exp2(score * factor - base[:, None])
    return weight, m_new, gl.exp2(m * factor - base)


@gluon.jit
def _added(l, weight, correction):
    """Sums of weights, eight columns to a row, so that no thread needs another's."""
    eight: gl.constexpr = l.type.layout
    folded = gl.sum(weight.reshape([ROWS, weight.shape[1] // 8, 8]), 1)
    correction = gl.convert_layout(correction, gl.SliceLayout(1, eight), assert_trivial=True)
    return l * correction[:, None] + gl.convert_layout(folded, eight, assert_trivial=True)


@gluon.jit
def _tile(
    C: gl.constexpr,
    i,
    before,
    past,
    turn,
    p,
    acc,
    m,
    l,
    query,
    zero,
    keys,
    values,
    key_barriers,
    value_barriers,
    turns,
    j,
    partial,
    place,
    S,
    T,
    unit,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    TURNS: gl.constexpr,
    WEIGHTED: gl.constexpr,
    SUMS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Weights of the i-th tile, made while those of the one before are multiplied by its values.

    `past` says whether nothing else is to be multiplied by the values of `before`.
    """
    key_ready, key_free = key_barriers
    value_ready, value_free = value_barriers
    weights: gl.constexpr = p.type.layout
    stage, phase = _slot(i, STAGES)
    old, old_phase = _slot(before, STAGES)
    if TURNS:
        # The first consumer finds its barrier fresh, where the phase before has passed.
        mbarrier.wait(turns.index(C), (turn & 1) ^ (1 if C == 0 else 0))
    mbarrier.wait(key_ready.index(stage), phase)
    key = keys.index(stage).reshape([BLOCK_N, keys.shape[4]]).permute((1, 0))
    score = warpgroup_mma(query, key, zero, use_acc=False, is_async=True)
    mbarrier.wait(value_ready.index(old), old_phase)
    value = values.index(old).reshape([BLOCK_N, values.shape[4]])
    acc = warpgroup_mma(p, value, acc, is_async=True)
    if TURNS:
        mbarrier.arrive(turns.index((C + 1) % CONSUMERS), count=1)
        turn += 1
    score = warpgroup_mma_wait(1, deps=[score])
    _release(key_free.index(stage))
    weight, m, correction = _weigh(
        score, m, j, partial, place, S, T, unit, MASKED, BIASED, BLOCK_N, WEIGHTED
    )
    if SUMS:
        l = _added(l, weight, correction)
    if OVERLAP:
        _no_sooner(place[3])
    acc = warpgroup_mma_wait(0, deps=[acc])
    gl.thread_barrier()
    mbarrier.arrive(value_free.index(old), count=1, pred=past)
    by_row: gl.constexpr = gl.SliceLayout(1, acc.type.layout)
    acc = acc * gl.convert_layout(correction, by_row, assert_trivial=True)[:, None]
    return gl.convert_layout(weight.to(p.dtype), weights), acc, m, l, turn


@gluon.jit
def _multiplied(i, p, acc, values, value_barriers, STAGES: gl.constexpr):
    """The output so far and the i-th tile's part of it, the last of a row."""
    value_ready, value_free = value_barriers
    stage, phase = _slot(i, STAGES)
    mbarrier.wait(value_ready.index(stage), phase)
    value = values.index(stage).reshape([values.shape[3], values.shape[4]])
    acc = warpgroup_mma(p, value, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    _release(value_free.index(stage))
    return acc


@gluon.jit
def _consume_row(
    C: gl.constexpr,
    w,
    done,
    i,
    turn,
    target,
    queries,
    outputs,
    keys,
    values,
    query_barriers,
    key_barriers,
    value_barriers,
    turns,
    shape,
    kv_len,
    S,
    T,
    scale,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    TURNS: gl.constexpr,
    OUTPUT_OVER_QUERIES: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    OVERLAP: gl.constexpr,
    APART: gl.constexpr,
):
    """The w-th row for consumer C, the one after `done` others: its 64 queries against every tile.

    `i` counts tiles and `turn` turns; returns what the next row begins with. Triton's front end
    visits what stands in a loop twice, to find what the loop changes, but a called function once.
    """
    o_desc, lse_ptr, sink_ptr = target
    query_ready, query_free = query_barriers
    key_ready, key_free = key_barriers
    scores: gl.constexpr = _matrix(BLOCK_N)
    output: gl.constexpr = _matrix(VALUE_PAD)
    weights: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=output, k_width=2)
    by_row: gl.constexpr = gl.SliceLayout(1, scores)
    by_output_row: gl.constexpr = gl.SliceLayout(1, output)
    dtype: gl.constexpr = keys.dtype
    query = queries.index(C).reshape([ROWS, HEAD_PAD])
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, scores)
    SUMS: gl.constexpr = NORMALISED or lse_ptr is not None

    batch, head, _kv_head, q0, q1 = _row(w, shape, CONSUMERS, HEADS_TOGETHER)
    q_rows = rows_from(q0 + C * ROWS, BLOCK_N)
    element = (batch, head, q_rows[:, None], kv_len)
    held, unit = HOLD(batch, head, q_rows[:, None], kv_len, scale, S, T)
    acc = gl.zeros([ROWS, VALUE_PAD], gl.float32, output)
    m = gl.full([ROWS], float("-inf"), gl.float32, by_row)
    l = gl.zeros([ROWS, 8], gl.float32, _matrix(8))
    mbarrier.wait(query_ready.index(0), done & 1)
    # Where there are registers: the less a product reads from memory, the less power it draws.
    HELD: gl.constexpr = CONSUMERS < 3 and HEAD_PAD == 128 and not WEIGHTED
    if HELD:
        query = query.load(gl.DotOperandLayout(operand_index=0, parent=scores, k_width=2))
        _release(query_free.index(0))
    j, end, partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
    first = i
    if APART:
        if j < NO_TILE:
            stage, phase = _slot(i, STAGES)
            mbarrier.wait(key_ready.index(stage), phase)
            key = keys.index(stage).reshape([BLOCK_N, HEAD_PAD]).permute((1, 0))
            score = warpgroup_mma(query, key, zero, use_acc=False, is_async=True)
            score = warpgroup_mma_wait(0, deps=[score])
            _release(key_free.index(stage))
            weight, m, correction = _weigh(
                score, m, j, partial, element, S, held, unit, MASKED, BIASED, BLOCK_N, WEIGHTED
            )
            if SUMS:
                l = _added(l, weight, correction)
            p = gl.convert_layout(weight.to(dtype), weights)
            i += 1
            j += 1
            if j == end:
                j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
            while j < NO_TILE:
                p, acc, m, l, turn = _tile(
                    C, i, i - 1, True, turn, p, acc, m, l, query, zero, keys, values, key_barriers,
                    value_barriers, turns, j, partial, element, S, held, unit, MASKED, BIASED,
                    BLOCK_N, STAGES, CONSUMERS, TURNS, WEIGHTED, SUMS, OVERLAP,
                )  # fmt: skip
                i += 1
                j += 1
                if j == end:
                    j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
            if not HELD and not OUTPUT_OVER_QUERIES:
                _release(query_free.index(0))
            acc = _multiplied(i - 1, p, acc, values, value_barriers, STAGES)
        elif not HELD and not OUTPUT_OVER_QUERIES:
            _release(query_free.index(0))
    else:
        # The first tile is weighed in the loop too, while nothing is multiplied by its values.
        p = gl.zeros([ROWS, BLOCK_N], dtype, weights)
        while j < NO_TILE:
            p, acc, m, l, turn = _tile(
                C, i, gl.maximum(i - 1, first), i > first, turn, p, acc, m, l, query, zero, keys,
                values, key_barriers, value_barriers, turns, j, partial, element, S, held, unit,
                MASKED, BIASED, BLOCK_N, STAGES, CONSUMERS, TURNS, WEIGHTED, SUMS, OVERLAP,
            )  # fmt: skip
            i += 1
            j += 1
            if j == end:
                j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        if not HELD and not OUTPUT_OVER_QUERIES:
            _release(query_free.index(0))
        if i > first:
            acc = _multiplied(i - 1, p, acc, values, value_barriers, STAGES)

    m = m * (unit * LOG2E)
    total = gl.convert_layout(gl.sum(l, 1), by_row)
    empty = total == 0.0
    z = gl.where(empty, 1.0, total)
    lse = total
    if not WEIGHTED:
        lse = gl.where(empty, float("-inf"), (m + gl.log2(z)) * LN2)
    if sink_ptr is not None:
        z += gl.exp2(gl.load(sink_ptr + head).to(gl.float32) * LOG2E - m)
    if NORMALISED:
        inverse = gl.where(empty, 0.0, 1.0 / z)
        inverse = gl.convert_layout(inverse, by_output_row, assert_trivial=True)
        acc = acc * inverse[:, None]
    # The row before may still be read out of this memory; or the queries by another warp.
    tma.store_wait(0)
    gl.thread_barrier()
    tile = outputs.index(C)
    tile.reshape([ROWS, VALUE_PAD]).store(acc.to(dtype))
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(o_desc, [batch, head, q0 + C * ROWS, 0], tile)
    if lse_ptr is not None:
        q_len = shape[4]
        at = lse_ptr + (batch * shape[2] + head).to(gl.int64) * q_len + q_rows
        gl.store(at, lse, mask=q_rows < q_len)
    if OUTPUT_OVER_QUERIES:
        tma.store_wait(0)
        _release(query_free.index(0))
    return i, turn


@gluon.jit
def _consume(
    C: gl.constexpr,
    target,
    queries,
    outputs,
    keys,
    values,
    query_barriers,
    key_barriers,
    value_barriers,
    turns,
    shape,
    kv_len,
    S,
    T,
    scale,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    TURNS: gl.constexpr,
    OUTPUT_OVER_QUERIES: gl.constexpr,
    PERSISTENT: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    OVERLAP: gl.constexpr,
    APART: gl.constexpr,
):
    """Consumer C: its 64 queries of every row against every tile of the row's runs.

    With TURNS the consumers issue their products one after the other, so that one multiplies
    while another weighs.
    """
    i = gl.to_tensor(0)
    turn = gl.to_tensor(0)
    done = gl.to_tensor(0)
    first_row, last_row, step = _rows_of_program(shape, PERSISTENT)
    for w in range(first_row, last_row, step):
        i, turn = _consume_row(
            C, w, done, i, turn, target, queries, outputs, keys, values, query_barriers,
            key_barriers, value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
            NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER, TURNS,
            OUTPUT_OVER_QUERIES, WEIGHTED, NORMALISED, OVERLAP, APART,
        )  # fmt: skip
        done += 1
    tma.store_wait(0)


@gluon.jit
def _barriers(STAGES: gl.constexpr, CONSUMERS: gl.constexpr):
    """The barriers of a ring: stages that hold a tile, and stages every consumer has left."""
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=CONSUMERS)
    return ready, free


@gluon.jit(do_not_specialize=["q_len", "kv_len", "rows", "batch_heads", *SCALARS])
def hopper_forward(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    sink_ptr,
    T,
    scale,
    q_len,
    kv_len,
    rows,
    batch_heads,
    heads,
    group,
    S0,
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    S8,
    S9,
    S10,
    S11,
    S12,
    S13,
    S14,
    S15,
    S16,
    S17,
    S18,
    S19,
    S20,
    S21,
    S22,
    S23,
    NUMBERS: gl.constexpr,
    TABLES: gl.constexpr,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    TURNS: gl.constexpr,
    OUTPUT_OVER_QUERIES: gl.constexpr,
    PERSISTENT: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    OVERLAP: gl.constexpr,
    APART: gl.constexpr,
):
    """What `forward` computes; `scale` must be positive.

    A program computes one row, `rows * batch_heads` in all; PERSISTENT programs, as many as run at
    once, take rows in turn. With OUTPUT_OVER_QUERIES, for equal dimensions, both share memory.
    With OVERLAP a tile is weighed while the one before is multiplied by its values; without, what a
    consumer waits for is left to the others to hide. APART, the first tile of a row is compiled by
    itself, before the loop.

    q, k, v and o are tensor descriptors of `[batch, heads, length, dim]` in blocks of 64 queries
    or BLOCK_N keys by HEAD_PAD or VALUE_PAD; lse `[batch, heads, q_len]` is contiguous float32, or
    None; `sink_ptr` holds a logit for each head that joins the normaliser, or is None. WEIGHTED and
    NORMALISED as of `forward`. The options must give `maxnreg`, from which the warps' registers are
    dealt out.
    """
    S = (
        S0,
        S1,
        S2,
        S3,
        S4,
        S5,
        S6,
        S7,
        S8,
        S9,
        S10,
        S11,
        S12,
        S13,
        S14,
        S15,
        S16,
        S17,
        S18,
        S19,
        S20,
        S21,
        S22,
        S23,
    )[:NUMBERS]
    T = T[:TABLES]
    dtype: gl.constexpr = q_desc.dtype
    queries = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, HEAD_PAD], q_desc.layout)
    outputs = queries
    if not OUTPUT_OVER_QUERIES:
        outputs = gl.allocate_shared_memory(
            dtype, [CONSUMERS, 1, 1, ROWS, VALUE_PAD], o_desc.layout
        )
    keys = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, HEAD_PAD], k_desc.layout)
    values = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, VALUE_PAD], v_desc.layout)
    query_barriers = _barriers(1, CONSUMERS)
    key_barriers = _barriers(STAGES, CONSUMERS)
    value_barriers = _barriers(STAGES, CONSUMERS)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for c in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(c), count=1)
    fence_async_shared()

    sources = (q_desc, k_desc, v_desc)
    target = (o_desc, lse_ptr, sink_ptr)
    shape = (rows, batch_heads, heads, group, q_len)
    # Constants in a tuple bound to a name would become tensors: they are written out.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (
                    0, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_produce, (
                    sources, queries, keys, values, query_barriers, key_barriers, value_barriers,
                    shape, kv_len, S, T, NEXT_RUN, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    PERSISTENT,
                )),
            ],
            [1],
            [PRODUCER_REGISTERS],
        )  # fmt: skip
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consume, (
                    0, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    1, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_produce, (
                    sources, queries, keys, values, query_barriers, key_barriers, value_barriers,
                    shape, kv_len, S, T, NEXT_RUN, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    PERSISTENT,
                )),
            ],
            [4, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume, (
                    0, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    1, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    2, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_produce, (
                    sources, queries, keys, values, query_barriers, key_barriers, value_barriers,
                    shape, kv_len, S, T, NEXT_RUN, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    PERSISTENT,
                )),
            ],
            [4, 4, 1],
            [CONSUMER_REGISTERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )  # fmt: skip
