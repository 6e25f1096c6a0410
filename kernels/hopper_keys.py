"""dK and dV on Hopper, in Gluon: the sums of `backward`, by warps that load and warps that compute.

As in `hopper_forward` a producer warp fills rings of tiles by the tensor memory accelerator. A
consumer holds 64 keys and their values against tiles of queries and output gradients.
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
    slope_of,
    weight_gradient,
    weights,
    weights_and_slopes,
)
from .forward import SCALARS, tile_of_program
from .gluon_names import barrier, copy_to_global, copy_to_shared
from .hopper_common import (
    ROWS,
    columns_from,
    each_time,
    matrix_of,
    release,
    ring_of_barriers,
    rows_from,
    rows_of_program,
    stage_of,
)
from .hopper_order import program_in_order, tile_in_order
from .runs import NO_TILE

row_layout = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
"""How descriptors lay a number of each query into shared memory."""


@gluon.jit
def keys_of_program(w, shape, CONSUMERS: gl.constexpr, together):
    """Batch and head of the w-th tile of keys, its first key and its last."""
    rows, batch_heads, kv_heads, _group, kv_len, _q_len, _padded = shape
    row, batch_head = tile_of_program(w, rows, batch_heads, together)
    # The first keys are the longest under every causal mask.
    k0 = (rows - 1 - row) * (CONSUMERS * ROWS)
    k1 = gl.minimum(k0 + CONSUMERS * ROWS, kv_len) - 1
    return batch_head // kv_heads, batch_head % kv_heads, k0, k1


@gluon.jit
def produce_queries(
    sources,
    held,
    rings,
    held_barriers,
    query_barriers,
    gradient_barriers,
    shape,
    S,
    T,
    NEXT_RUN: gl.constexpr,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    together,
    HELD: gl.constexpr,
    order=None,
):
    """The producer: keys and values of a row, then queries and gradients of a group of heads.

    order: of programs and tiles, of `hopper_order`.
    """
    q_desc, k_desc, v_desc, g_desc, statistic_desc, delta_desc = sources
    keys, values = held
    queries, gradients, statistics, deltas = rings
    held_ready, held_free = held_barriers
    query_ready, query_free = query_barriers
    gradient_ready, gradient_free = gradient_barriers
    _rows, _batch_heads, kv_heads, group, _kv_len, q_len, padded = shape
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    start, stop, step = rows_of_program(shape, HELD > 1)
    for w in range(start, stop, step):
        if order is None:
            batch, kv_head, k0, k1 = keys_of_program(w, shape, CONSUMERS, together)
            first_head, members = kv_head * group, group
        else:
            batch, first_head, k0, k1, from_last = program_in_order(shape, order)
            kv_head, members = first_head // group, order[0]
        place, phase = stage_of(done, HELD)
        ready = held_ready.index(place)
        mbarrier.wait(held_free.index(place), phase ^ 1)
        mbarrier.expect(ready, CONSUMERS * (k_desc.block_type.nbytes + v_desc.block_type.nbytes))
        for c in gl.static_range(CONSUMERS):
            first = [batch, kv_head, k0 + c * ROWS, 0]
            at = place * CONSUMERS + c
            copy_to_shared(k_desc, first, ready, keys.index(at))
            copy_to_shared(v_desc, first, ready, values.index(at))
        done += 1
        for head in range(first_head, first_head + members):
            row = (batch * kv_heads * group + head) * padded
            of_row = (k0, k1, batch, head, q_len, S, T, BLOCK_M)
            if order is None:
                j, end, _partial = NEXT_RUN(gl.to_tensor(0), *of_row)
            else:
                j, end, _partial = NEXT_RUN(gl.to_tensor(0), from_last, *of_row)
            while j < NO_TILE:
                stage, phase = stage_of(i, STAGES)
                if order is None:
                    m = j * BLOCK_M
                else:
                    m = tile_in_order(j, from_last, q_len, BLOCK_M) * BLOCK_M
                first = [batch, head, m, 0]
                first_row = [row + m]
                ready = query_ready.index(stage)
                mbarrier.wait(query_free.index(stage), phase ^ 1)
                mbarrier.expect(ready, q_desc.block_type.nbytes + statistic_desc.block_type.nbytes)
                copy_to_shared(q_desc, first, ready, queries.index(stage))
                if delta_desc is None:
                    copy_to_shared(statistic_desc, [row + m, 0], ready, statistics.index(stage))
                else:
                    copy_to_shared(statistic_desc, first_row, ready, statistics.index(stage))
                ready = gradient_ready.index(stage)
                mbarrier.wait(gradient_free.index(stage), phase ^ 1)
                if delta_desc is None:
                    mbarrier.expect(ready, g_desc.block_type.nbytes)
                else:
                    mbarrier.expect(ready, g_desc.block_type.nbytes + delta_desc.block_type.nbytes)
                    copy_to_shared(delta_desc, first_row, ready, deltas.index(stage))
                copy_to_shared(g_desc, first, ready, gradients.index(stage))
                i += 1
                j += 1
                if j == end:
                    if order is None:
                        j, end, _partial = NEXT_RUN(j, *of_row)
                    else:
                        j, end, _partial = NEXT_RUN(j, from_last, *of_row)


@gluon.jit
def _consume_queries(
    C: gl.constexpr,
    targets,
    held,
    rings,
    held_barriers,
    query_barriers,
    gradient_barriers,
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
    VALUE_PAD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
    WEIGHTED: gl.constexpr,
    NORMALISED: gl.constexpr,
    HELD: gl.constexpr,
    ANEW: gl.constexpr,
):
    """Consumer C: dK and dV of its 64 keys of every row, from each tile of queries of the runs."""
    dk_desc, dv_desc = targets
    keys, values = held
    queries, gradients, statistics, deltas = rings
    held_ready, held_free = held_barriers
    query_ready, query_free = query_barriers
    gradient_ready, gradient_free = gradient_barriers
    scores: gl.constexpr = matrix_of(BLOCK_M)
    of_keys: gl.constexpr = matrix_of(HEAD_PAD)
    of_values: gl.constexpr = matrix_of(VALUE_PAD)
    by_query: gl.constexpr = gl.SliceLayout(0, scores)
    dtype: gl.constexpr = keys.dtype
    # Where there are registers, what is known of queries is read while their product is made.
    EARLY: gl.constexpr = BIASED is None and HEAD_PAD == 128 and CONSUMERS == 2
    _rows, _batch_heads, _kv_heads, group, kv_len, q_len, _padded = shape
    zero = gl.zeros([ROWS, BLOCK_M], gl.float32, scores)
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    start, stop, step = rows_of_program(shape, HELD > 1)
    for w in range(start, stop, step):
        batch, kv_head, k0, k1 = keys_of_program(w, shape, CONSUMERS, HEADS_TOGETHER)
        place, held_phase = stage_of(done, HELD)
        mine = place * CONSUMERS + C
        kv_idx = rows_from(k0 + C * ROWS, BLOCK_M)[:, None]
        dk = gl.zeros([ROWS, HEAD_PAD], gl.float32, of_keys)
        dv = gl.zeros([ROWS, VALUE_PAD], gl.float32, of_values)

        mbarrier.wait(held_ready.index(place), held_phase)
        done += 1
        for g in range(0, group):
            head = kv_head * group + g
            known, unit = HOLD(batch, head, kv_idx, kv_len, scale, S, T)
            j, end, partial = NEXT_RUN(gl.to_tensor(0), k0, k1, batch, head, q_len, S, T, BLOCK_M)
            while j < NO_TILE:
                stage, phase = stage_of(i, STAGES)
                held_now = mine
                if ANEW:
                    held_now = each_time(mine, i)
                key = keys.index(held_now).reshape([ROWS, HEAD_PAD])
                value = values.index(held_now).reshape([ROWS, VALUE_PAD])
                query = queries.index(stage).reshape([BLOCK_M, HEAD_PAD])
                gradient = gradients.index(stage).reshape([BLOCK_M, VALUE_PAD])
                mbarrier.wait(query_ready.index(stage), phase)
                product = warpgroup_mma(
                    key, query.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                statistic = None
                delta = None
                if NORMALISED and EARLY:
                    statistic = statistics.index(stage).load(by_query)[None, :]
                mbarrier.wait(gradient_ready.index(stage), phase)
                dp = warpgroup_mma(
                    value, gradient.permute((1, 0)), zero, use_acc=False, is_async=True
                )
                q_idx = columns_from(j * BLOCK_M, BLOCK_M)
                at = (batch, head, q_idx, kv_idx, kv_len)
                product = warpgroup_mma_wait(1, deps=[product])
                if NORMALISED and not EARLY:
                    statistic = statistics.index(stage).load(by_query)[None, :]
                if WEIGHTED:
                    p, slope = weights_and_slopes(
                        product, statistic, at, S, known, unit, MASKED, BIASED, SLOPE, partial
                    )
                else:
                    p = weights(
                        product, statistic, at, S, known, unit, MASKED, BIASED, partial, False
                    )
                weight = gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, of_values, 2))
                dv = warpgroup_mma(weight, gradient, dv, is_async=True)
                dp = warpgroup_mma_wait(1, deps=[dp])
                if NORMALISED:
                    delta = deltas.index(stage).load(by_query)[None, :]
                if WEIGHTED:
                    if NORMALISED:
                        dp = dp - delta
                    ds = dp * slope
                else:
                    ds = weight_gradient(
                        p, dp, delta, statistic, at, S, known, MASKED, partial, False
                    )
                    ds = ds * slope_of(product, at, S, known, SLOPE)
                change = gl.convert_layout(ds.to(dtype), gl.DotOperandLayout(0, of_keys, 2))
                dk = warpgroup_mma(change, query, dk, is_async=True)
                dv = warpgroup_mma_wait(1, deps=[dv])
                release(gradient_free.index(stage))
                dk = warpgroup_mma_wait(0, deps=[dk])
                release(query_free.index(stage))
                i += 1
                j += 1
                if j == end:
                    j, end, partial = NEXT_RUN(j, k0, k1, batch, head, q_len, S, T, BLOCK_M)

        # No other consumer reads these keys and values, and this one is past its products.
        barrier()
        keys.index(mine).reshape([ROWS, HEAD_PAD]).store((dk * scale).to(dtype))
        values.index(mine).reshape([ROWS, VALUE_PAD]).store(dv.to(dtype))
        fence_async_shared()
        barrier()
        first = [batch, kv_head, k0 + C * ROWS, 0]
        copy_to_global(dk_desc, first, keys.index(mine))
        copy_to_global(dv_desc, first, values.index(mine))
        tma.store_wait(0)
        release(held_free.index(place))


@gluon.jit(do_not_specialize=["q_len", "kv_len", "padded", "rows", "batch_heads", *SCALARS])
def hopper_backward_keys(
    q_desc,
    k_desc,
    v_desc,
    g_desc,
    statistic_desc,
    delta_desc,
    dk_desc,
    dv_desc,
    T,
    scale,
    q_len,
    kv_len,
    padded,
    rows,
    batch_heads,
    heads,
    group,
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
    """dK and dV of CONSUMERS x 64 keys of one key-value head, `heads` of them in a batch.

    q, k, v, g (dO), dk and dv are tensor descriptors of `[batch, heads, length, dim]` in blocks of
    BLOCK queries or 64 keys; statistic and delta are descriptors of what the kernel of dQ wrote,
    flat, in blocks of BLOCK. WEIGHTED, the biased score is the weight itself; unless NORMALISED, z
    is 1. The options must give `maxnreg`, from which the warps' registers are dealt out: 168 for
    two consumers, 128 for one, of which two programs share a multiprocessor.

    A program computes one row, `rows * batch_heads` in all, where there is one place for what is
    HELD; with two, programs, as many as run at once, take rows in turn, and the next row's keys and
    values are on their way while this one is computed. ANEW, what follows from their places is
    computed at each step, where registers are scarce.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    dtype: gl.constexpr = q_desc.dtype
    places: gl.constexpr = HELD * CONSUMERS
    keys = gl.allocate_shared_memory(dtype, [places, 1, 1, ROWS, HEAD_PAD], k_desc.layout)
    values = gl.allocate_shared_memory(dtype, [places, 1, 1, ROWS, VALUE_PAD], v_desc.layout)
    queries = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, HEAD_PAD], q_desc.layout)
    gradients = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, VALUE_PAD], g_desc.layout)
    statistics = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], statistic_desc.layout)
    deltas = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], delta_desc.layout)
    held_barriers = ring_of_barriers(HELD, CONSUMERS)
    query_barriers = ring_of_barriers(STAGES, CONSUMERS)
    gradient_barriers = ring_of_barriers(STAGES, CONSUMERS)
    fence_async_shared()

    sources = (q_desc, k_desc, v_desc, g_desc, statistic_desc, delta_desc)
    targets = (dk_desc, dv_desc)
    held = (keys, values)
    rings = (queries, gradients, statistics, deltas)
    shape = (rows, batch_heads, heads, group, kv_len, q_len, padded)
    # Constants in a tuple bound to a name would become tensors: they are written out.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume_queries, (
                    0, targets, held, rings, held_barriers, query_barriers, gradient_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_PAD,
                    BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, WEIGHTED, NORMALISED, HELD, ANEW,
                )),
                (produce_queries, (
                    sources, held, rings, held_barriers, query_barriers, gradient_barriers, shape,
                    S, T, NEXT_RUN, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, HELD,
                )),
            ],
            [1],
            [24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consume_queries, (
                    0, targets, held, rings, held_barriers, query_barriers, gradient_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_PAD,
                    BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, WEIGHTED, NORMALISED, HELD, ANEW,
                )),
                (_consume_queries, (
                    1, targets, held, rings, held_barriers, query_barriers, gradient_barriers,
                    shape, S, T, scale, HOLD, MASKED, BIASED, SLOPE, NEXT_RUN, HEAD_PAD, VALUE_PAD,
                    BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, WEIGHTED, NORMALISED, HELD, ANEW,
                )),
                (produce_queries, (
                    sources, held, rings, held_barriers, query_barriers, gradient_barriers, shape,
                    S, T, NEXT_RUN, BLOCK, STAGES, CONSUMERS, HEADS_TOGETHER, HELD,
                )),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
