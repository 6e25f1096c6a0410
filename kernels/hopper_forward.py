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

from .forward import LOG2E, SCALARS, dequantising, tile_of_program
from .gluon_names import barrier, copy_to_global, copy_to_shared
from .hopper_common import (
    ROWS,
    matrix_of,
    release,
    ring_of_barriers,
    rows_from,
    rows_of_program,
    stage_of,
)
from .hopper_float8 import packed, raised
from .hopper_tile import added, entries_of, multiplied, tile_after, weigh, with_early
from .runs import NO_TILE

LN2 = gl.constexpr(0.6931471805599453)


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
    first_row, last_row, step = rows_of_program(shape, PERSISTENT)
    for w in range(first_row, last_row, step):
        batch, head, kv_head, q0, q1 = _row(w, shape, CONSUMERS, HEADS_TOGETHER)
        mbarrier.wait(query_free.index(0), (done & 1) ^ 1)
        mbarrier.expect(query_ready.index(0), CONSUMERS * q_desc.block_type.nbytes)
        for c in gl.static_range(CONSUMERS):
            first = [batch, head, q0 + c * ROWS, 0]
            copy_to_shared(q_desc, first, query_ready.index(0), queries.index(c))
        done += 1
        j, end, _partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        while j < NO_TILE:
            stage, phase = stage_of(i, STAGES)
            first = [batch, kv_head, j * BLOCK_N, 0]
            of_values = first
            if v_desc.dtype == gl.float8e4nv:
                of_values = [batch, kv_head, 0, j * BLOCK_N]
            ready = key_ready.index(stage)
            mbarrier.wait(key_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, k_desc.block_type.nbytes)
            copy_to_shared(k_desc, first, ready, keys.index(stage))
            ready = value_ready.index(stage)
            mbarrier.wait(value_free.index(stage), phase ^ 1)
            mbarrier.expect(ready, v_desc.block_type.nbytes)
            copy_to_shared(v_desc, of_values, ready, values.index(stage))
            i += 1
            j += 1
            if j == end:
                j, end, _partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)


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
    AHEAD: gl.constexpr,
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
    o_desc, lse_ptr, sink_ptr, descales = target
    query_ready, query_free = query_barriers
    key_ready, key_free = key_barriers
    dtype: gl.constexpr = keys.dtype
    bits: gl.constexpr = dtype.primitive_bitwidth
    scores: gl.constexpr = matrix_of(BLOCK_N)
    products: gl.constexpr = matrix_of(BLOCK_N, bits)
    output: gl.constexpr = matrix_of(VALUE_PAD, bits)
    by_row: gl.constexpr = gl.SliceLayout(1, scores)
    by_output_row: gl.constexpr = gl.SliceLayout(1, output)
    query = queries.index(C).reshape([ROWS, HEAD_PAD])
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, products)
    SUMS: gl.constexpr = NORMALISED or lse_ptr is not None

    batch, head, _kv_head, q0, q1 = _row(w, shape, CONSUMERS, HEADS_TOGETHER)
    q_rows = rows_from(q0 + C * ROWS, BLOCK_N)
    element = (batch, head, q_rows[:, None], kv_len, q0 + C * ROWS)
    scale, factor = dequantising(scale, descales, batch, head, shape[2], shape[3])
    held, unit = HOLD(batch, head, q_rows[:, None], kv_len, scale, S, T)
    acc = gl.zeros([ROWS, VALUE_PAD], gl.float32, output)
    m = gl.full([ROWS], float("-inf"), gl.float32, by_row)
    l = gl.zeros([ROWS, 8], gl.float32, matrix_of(8))
    mbarrier.wait(query_ready.index(0), done & 1)
    # Where there are registers: the less a product reads from memory, the less power it draws.
    HELD: gl.constexpr = CONSUMERS < 3 and HEAD_PAD == 128 and bits == 16 and not WEIGHTED
    if HELD:
        query = query.load(gl.DotOperandLayout(0, products, k_width=2))
        release(query_free.index(0))
    j, end, partial = NEXT_RUN(gl.to_tensor(0), q0, q1, batch, head, kv_len, S, T, BLOCK_N)
    first = i
    if APART:
        if j < NO_TILE:
            stage, phase = stage_of(i, STAGES)
            early = entries_of(AHEAD, j, element, S, held, BLOCK_N)
            mbarrier.wait(key_ready.index(stage), phase)
            key = keys.index(stage).reshape([BLOCK_N, HEAD_PAD]).permute((1, 0))
            score = warpgroup_mma(query, key, zero, use_acc=False, is_async=True)
            score = warpgroup_mma_wait(0, deps=[score])
            release(key_free.index(stage))
            score = gl.convert_layout(score, scores, assert_trivial=True)
            known = with_early(S, early, BLOCK_N)
            weight, m, correction = weigh(
                score, m, j, partial, element, known, held, unit, MASKED, BIASED, BLOCK_N, WEIGHTED,
                dtype,
            )  # fmt: skip
            if SUMS:
                l = added(l, weight, correction)
            p = packed(weight, output, dtype)
            i += 1
            j += 1
            if j == end:
                j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
            while j < NO_TILE:
                p, acc, m, l, turn = tile_after(
                    C, i, i - 1, True, True, turn, p, acc, m, l, query, zero, keys, values,
                    key_barriers, value_barriers, turns, j, partial, element, S, held, unit, AHEAD,
                    MASKED, BIASED, BLOCK_N, STAGES, CONSUMERS, TURNS, WEIGHTED, SUMS, OVERLAP,
                )  # fmt: skip
                i += 1
                j += 1
                if j == end:
                    j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
            if not HELD and not OUTPUT_OVER_QUERIES:
                release(query_free.index(0))
            acc = multiplied(i - 1, p, acc, True, values, value_barriers, STAGES)
        elif not HELD and not OUTPUT_OVER_QUERIES:
            release(query_free.index(0))
    else:
        # The first tile is weighed in the loop too, beside a product that the next one drops.
        p = packed(gl.zeros([ROWS, BLOCK_N], gl.float32, scores), output, dtype)
        while j < NO_TILE:
            p, acc, m, l, turn = tile_after(
                C, i, gl.maximum(i - 1, first), i > first, i > first + 1, turn, p, acc, m, l, query,
                zero, keys, values, key_barriers, value_barriers, turns, j, partial, element, S,
                held, unit, AHEAD, MASKED, BIASED, BLOCK_N, STAGES, CONSUMERS, TURNS, WEIGHTED,
                SUMS, OVERLAP,
            )  # fmt: skip
            i += 1
            j += 1
            if j == end:
                j, end, partial = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK_N)
        if not HELD and not OUTPUT_OVER_QUERIES:
            release(query_free.index(0))
        if i > first:
            acc = multiplied(i - 1, p, acc, i - 1 > first, values, value_barriers, STAGES)

    m = m * (unit * LOG2E) - raised(dtype)
    total = gl.convert_layout(gl.sum(l, 1), by_row)
    empty = total == 0.0
    z = gl.where(empty, 1.0, total)
    lse = total
    if not WEIGHTED:
        lse = gl.where(empty, float("-inf"), (m + gl.log2(z)) * LN2)
    if sink_ptr is not None:
        z += gl.exp2(gl.load(sink_ptr + head).to(gl.float32) * LOG2E - m)
    if NORMALISED:
        inverse = gl.where(empty, 0.0, factor / z)
        inverse = gl.convert_layout(inverse, by_output_row, assert_trivial=True)
        acc = acc * inverse[:, None]
    # The row before may still be read out of this memory; or the queries by another warp.
    tma.store_wait(0)
    barrier()
    tile = outputs.index(C)
    tile.reshape([ROWS, VALUE_PAD]).store(acc.to(tile.dtype))
    fence_async_shared()
    barrier()
    copy_to_global(o_desc, [batch, head, q0 + C * ROWS, 0], tile)
    if lse_ptr is not None:
        q_len = shape[4]
        at = lse_ptr + (batch * shape[2] + head).to(gl.int64) * q_len + q_rows
        gl.store(at, lse, mask=q_rows < q_len)
    if OUTPUT_OVER_QUERIES:
        tma.store_wait(0)
        release(query_free.index(0))
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
    AHEAD: gl.constexpr,
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
    first_row, last_row, step = rows_of_program(shape, PERSISTENT)
    for w in range(first_row, last_row, step):
        i, turn = _consume_row(
            C, w, done, i, turn, target, queries, outputs, keys, values, query_barriers,
            key_barriers, value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED,
            BIASED, NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
            TURNS, OUTPUT_OVER_QUERIES, WEIGHTED, NORMALISED, OVERLAP, APART,
        )  # fmt: skip
        done += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["q_len", "kv_len", "rows", "batch_heads", *SCALARS])
def hopper_forward(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    sink_ptr,
    T,
    descales,
    scale,
    q_len,
    kv_len,
    rows,
    batch_heads,
    heads,
    group,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: gl.constexpr,
    TABLES: gl.constexpr,
    HOLD: gl.constexpr,
    AHEAD: gl.constexpr,
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
):  # fmt: skip
    """What `forward` computes; `scale` must be positive.

    A program computes one row, `rows * batch_heads` in all; PERSISTENT programs, as many as run at
    once, take rows in turn. With OUTPUT_OVER_QUERIES, for equal dimensions, both share memory.
    With OVERLAP a tile is weighed while the one before is multiplied by its values; without, what a
    consumer waits for is left to the others to hide. APART, the first tile of a row is compiled by
    itself, before the loop.

    q, k, v and o are tensor descriptors of `[batch, heads, length, dim]` in blocks of 64 queries
    or BLOCK_N keys by HEAD_PAD or VALUE_PAD; lse `[batch, heads, q_len]` is contiguous float32, or
    None; `sink_ptr` holds a logit for each head that joins the normaliser, or is None. `descales`,
    WEIGHTED and NORMALISED as of `forward`. The options must give `maxnreg`, from which the warps'
    registers are dealt out.

    Of float8 q and k, v is what `float8_values` makes of it, in blocks of VALUE_PAD dimensions by
    BLOCK_N keys, o is of half precision, and weights are those of a softmax.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    dtype: gl.constexpr = q_desc.dtype
    queries = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, HEAD_PAD], q_desc.layout)
    outputs = queries
    if not OUTPUT_OVER_QUERIES:
        outputs = gl.allocate_shared_memory(
            o_desc.dtype, [CONSUMERS, 1, 1, ROWS, VALUE_PAD], o_desc.layout
        )
    keys = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, HEAD_PAD], k_desc.layout)
    if dtype == gl.float8e4nv:
        values = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, VALUE_PAD, BLOCK_N], v_desc.layout)
    else:
        values = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, VALUE_PAD], v_desc.layout)
    query_barriers = ring_of_barriers(1, CONSUMERS)
    key_barriers = ring_of_barriers(STAGES, CONSUMERS)
    value_barriers = ring_of_barriers(STAGES, CONSUMERS)
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    for c in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(c), count=1)
    fence_async_shared()

    sources = (q_desc, k_desc, v_desc)
    target = (o_desc, lse_ptr, sink_ptr, descales)
    shape = (rows, batch_heads, heads, group, q_len)
    # Constants in a tuple bound to a name would become tensors: they are written out.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (
                    0, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
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
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    1, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
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
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    1, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
                    NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK_N, STAGES, CONSUMERS, HEADS_TOGETHER,
                    TURNS, OUTPUT_OVER_QUERIES, PERSISTENT, WEIGHTED, NORMALISED, OVERLAP,
                    APART,
                )),
                (_consume, (
                    2, target, queries, outputs, keys, values, query_barriers, key_barriers,
                    value_barriers, turns, shape, kv_len, S, T, scale, HOLD, AHEAD, MASKED, BIASED,
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
