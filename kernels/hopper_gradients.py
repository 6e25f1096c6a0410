"""All gradients in one pass on Hopper, in Gluon: five matrix products of a tile instead of seven.

As in `hopper_keys` a producer warp fills rings of tiles of queries, and two consumers hold 64
keys each. Each also hands its gradients of scores to the other through shared memory, so that each
computes half of a tile of dQ from all 128 keys: half of its queries, or half of the columns of 64
queries. A warp for each consumer adds that half to float32 sums. Programs add to a tile in the
order they were started: the same bits every time.

Shared memory, which the products keep busy, is read for tiles only: the numbers subtracted from
rows of scores and of dO . v are one more step of the products.

A program waits only for earlier programs, which end without it. `hopper_order` says in which order
programs start.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .elements import SCALARS, Hooks, Place, weight_gradient, weights
from .gluon_names import barrier, barrier_to_arrive
from .gradient_rows import PIECES, SHIFT_COLUMNS
from .hopper_common import (
    ROWS,
    Call,
    Options,
    Ring,
    barriers,
    barriers_of,
    block_at,
    columns_from,
    each_time,
    matrix_of,
    memory_of,
    release,
    rows_from,
    stage_of,
    store_block,
)
from .hopper_keys import Program, produce_queries
from .hopper_order import CONSUMERS, program_in_order, tile_in_order
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
from .hopper_shifts import sum_of_pieces
from .hopper_sums import PART_COLUMNS, PART_ROWS, end_part, part_of, sum_of_parts, sum_up
from .runs import NO_TILE, SpanEitherWay, first_tile, next_tile

_COLUMNS = gl.constexpr(64)  # of a consumer's part of dQ, which has 64 rows too

_change_layout = gl.constexpr(gl.NVMMASharedLayout(128, 16, rank=2))


class OnePass(NamedTuple):
    """Memory that the warps share beside `hopper_keys.Program`: rings of gradients of scores and of
    parts of dQ, sums of dQ, of dK and of dV, and the order of programs."""

    changes: Ring
    parts: Ring
    sum_desc: gl.tensor
    counter_ptr: gl.tensor
    turn_ptr: gl.tensor
    tiles: gl.tensor
    key_sum_ptr: gl.tensor
    value_sum_ptr: gl.tensor
    part_counter_ptr: gl.tensor
    members: gl.tensor
    together: gl.tensor
    turned: gl.tensor


@gluon.jit
def _part_of_queries(C: gl.constexpr, mine, i, program, BLOCK: gl.constexpr):
    """Consumer C's part of dQ of the i-th tile, under way; arbitrary for the tile before the first.

    A product cannot be under way on one side of a branch alone.
    """
    changes = program.one_pass.changes
    slot, phase = stage_of(changes, i + 2)
    mbarrier.wait(changes.ready.index(slot), phase ^ 1, pred=i >= 0)
    own = changes.memory.index(slot * CONSUMERS + mine)
    other = changes.memory.index(slot * CONSUMERS + 1 - mine)
    own_key = block_at(program.held.memory, mine)[0]
    other_key = block_at(program.held.memory, 1 - mine)[0]
    if BLOCK == ROWS:
        own_key = own_key.slice(C * _COLUMNS, _COLUMNS, dim=1)
        other_key = other_key.slice(C * _COLUMNS, _COLUMNS, dim=1)
    else:
        own = own.slice(C * ROWS, ROWS)
        other = other.slice(C * ROWS, ROWS)
    dq = gl.zeros([ROWS, _COLUMNS], gl.float32, matrix_of(_COLUMNS))
    dq = warpgroup_mma(own, own_key, dq, use_acc=False, is_async=True)
    return warpgroup_mma(other, other_key, dq, is_async=True)


@gluon.jit
def _store_part(C: gl.constexpr, i, dq, parts):
    """Store consumer C's part of dQ of the i-th tile for the warp that adds it."""
    mbarrier.wait(parts.free.index(C), (i & 1) ^ 1)
    parts.memory.index(C).reshape([PART_ROWS, PART_COLUMNS]).store(part_of(dq))


@gluon.jit
def _hand_over(C: gl.constexpr, i, one):
    """Signal that the i-th tile's part is stored, and that its product's operands are free.

    The tile before the first has no part.
    """
    fence_async_shared()
    barrier_to_arrive()
    mbarrier.arrive(one.parts.ready.index(C), count=1, pred=i >= 0)
    mbarrier.arrive(one.changes.free.index((i + 2) % 2), count=1, pred=i >= 0)


@gluon.jit
def _store_gradients(C: gl.constexpr, dk, dv, at, program, options):
    """Store consumer C's rows of dK and dV, by way of the shared memory of its keys and values."""
    keys, vals, held_free = program.held.memory, program.held.beside, program.held.free
    # Both consumers are past their products with these keys.
    release(held_free.index(0))
    mbarrier.wait(held_free.index(0), 0)
    store_sums(block_at(keys, C), dk, program.call.scale, options.HEAD_DIM)
    store_sums(block_at(vals, C), dv, 1.0, options.VALUE_DIM)
    fence_async_shared()
    barrier()
    store_block(program.dk_desc, at, keys, C)
    store_block(program.dv_desc, at, vals, C)
    tma.store_wait(0)


@gluon.jit
def _consume(C: gl.constexpr, program, options):
    """Consumer C: dK and dV of its 64 keys; its part of dQ of each tile, one tile later.

    By then the other consumer has mostly handed its gradients over, and neither waits long.
    """
    call, held, one = program.call, program.held, program.one_pass
    queries, gradients = program.queries, program.gradients
    S, kv_len, q_len = call.S, call.kv_len, call.q_len
    BLOCK: gl.constexpr = options.BLOCK
    HEAD_DIM: gl.constexpr = options.HEAD_DIM
    VALUE_DIM: gl.constexpr = options.VALUE_DIM
    scores: gl.constexpr = matrix_of(BLOCK)
    dtype: gl.constexpr = program.k_desc.dtype
    # Stored before dK is made, parts of dQ need not wait for the product of dK to read its memory.
    AHEAD: gl.constexpr = options.HEAD_PAD == 128
    to_scores = sum_of_pieces(0, scores)
    to_products = sum_of_pieces(PIECES, scores)
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    batch, first_head, k0, k1, from_last = program_in_order(program)
    kv_idx = rows_from(k0 + C * ROWS, BLOCK)[:, None]
    dk = no_sums(HEAD_DIM)
    dv = no_sums(VALUE_DIM)
    i = gl.to_tensor(0)
    mbarrier.wait(held.ready.index(0), 0)
    for member in range(0, one.members):
        head = first_head + member
        known, unit = options.hooks.HOLD(batch, head, kv_idx, kv_len, call.scale, S, call.T)
        span = SpanEitherWay(from_last, k0, k1, batch, head, q_len, S, call.T)
        run = first_tile(span, options.hooks.NEXT_RUN, BLOCK)
        while run.tile < NO_TILE:
            stage, phase = stage_of(queries, i)
            mine = each_time(C, i)
            key = block_at(held.memory, mine)
            value = block_at(held.beside, mine)
            query = block_at(queries.memory, stage)
            gradient = block_at(gradients.memory, stage)
            shift = queries.beside.index(stage).permute((1, 0))
            mbarrier.wait(queries.ready.index(stage), phase)
            # Shifts are added last: large ones round the sums only once.
            product = dots(rows_of(key, HEAD_DIM), query, zero, HEAD_DIM)
            product = warpgroup_mma(to_scores, shift, product, is_async=True)
            mbarrier.wait(gradients.ready.index(stage), phase)
            dp = dots(rows_of(value, VALUE_DIM), gradient, zero, VALUE_DIM)
            dp = warpgroup_mma(to_products, shift, dp, is_async=True)
            m = tile_in_order(run.tile, from_last, each_time(q_len, i), BLOCK) * BLOCK
            at = Place(
                batch,
                head,
                columns_from(m, BLOCK, options.LOOKED_UP),
                kv_idx,
                kv_len,
                S,
                known,
            )
            product = warpgroup_mma_wait(products_of(VALUE_DIM) + 1, deps=[product])
            p = weights(product, 0.0, at, unit, options.hooks, run.partial)
            dv = add_rows(dv, p, gradient, VALUE_DIM)
            dp = warpgroup_mma_wait(sums_of(VALUE_DIM), deps=[dp])
            ds = weight_gradient(p, dp, 0.0, 1.0, at, options.hooks, run.partial)
            if k0 + CONSUMERS * ROWS > kv_len:
                # Weights of keys past the length are unbounded, and dQ would multiply them by zero.
                ds = gl.where(kv_idx < kv_len, ds, 0.0)
            ds = ds.to(dtype)
            slot, phase = stage_of(one.changes, i)
            mbarrier.wait(one.changes.free.index(slot), phase ^ 1)
            one.changes.memory.index(slot * CONSUMERS + mine).permute((1, 0)).store(ds)
            fence_async_shared()
            release(one.changes.ready.index(slot))
            change = operand_of(ds, dtype, HEAD_DIM)
            dq = _part_of_queries(C, mine, i - 1, program, BLOCK)
            if AHEAD:
                dq = warpgroup_mma_wait(0, deps=[dq])
                dv = wait_for(dv)
                if i > 0:
                    _store_part(C, i - 1, dq, one.parts)
                dk = add_rows(dk, change, query, HEAD_DIM)
            else:
                dk = add_rows(dk, change, query, HEAD_DIM)
                dq = warpgroup_mma_wait(sums_of(HEAD_DIM), deps=[dq])
                dv = wait_for(dv, sums_of(HEAD_DIM))
                if i > 0:
                    _store_part(C, i - 1, dq, one.parts)
            _hand_over(C, i - 1, one)
            dk = wait_for(dk)
            release(queries.free.index(stage))
            i += 1
            run = next_tile(run, span, options.hooks.NEXT_RUN, BLOCK)
    if i > 0:
        last = _part_of_queries(C, each_time(C, i), i - 1, program, BLOCK)
        last = warpgroup_mma_wait(0, deps=[last])
        _store_part(C, i - 1, last, one.parts)
        _hand_over(C, i - 1, one)

    kv_head = first_head // call.group
    at = [batch, kv_head, each_time(k0, i) + C * ROWS, 0]
    if one.key_sum_ptr is None:
        _store_gradients(C, dk, dv, at, program, options)
    else:
        count = call.group // one.members
        part = first_head % call.group // one.members
        row = (batch * call.heads + kv_head) * call.rows + k0 // (CONSUMERS * ROWS)
        first = row * (CONSUMERS * ROWS) + C * ROWS
        counter = one.part_counter_ptr + row * CONSUMERS + C
        dk = sum_of_parts(dk, one.key_sum_ptr, counter, first, part, count, options.HEAD_PAD)
        dv = sum_of_parts(dv, one.value_sum_ptr, counter, first, part, count, options.VALUE_PAD)
        end_part(counter)
        if part == count - 1:
            _store_gradients(C, dk, dv, at, program, options)


@gluon.jit
def _specialise(program, options):
    """Two consumers, the producer, and a warp for each consumer that adds its parts of dQ."""
    gl.warp_specialize(
        [
            (_consume, (0, program, options)),
            (_consume, (1, program, options)),
            (produce_queries, (program, options)),
            (sum_up, (0, program, options)),
            (sum_up, (1, program, options)),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )


@gluon.jit(
    do_not_specialize=[
        "q_len",
        "kv_len",
        "padded",
        "rows",
        "batch_heads",
        "tiles",
        "members",
        "together",
        "turned",
        *SCALARS,
    ]
)
def hopper_gradients(
    q_desc,
    k_desc,
    v_desc,
    g_desc,
    shift_desc,
    dk_desc,
    dv_desc,
    sum_desc,
    counter_ptr,
    turn_ptr,
    key_sum_ptr,
    value_sum_ptr,
    part_counter_ptr,
    T,
    scale,
    q_len,
    kv_len,
    padded,
    rows,
    batch_heads,
    heads,
    group,
    tiles,
    members,
    together,
    turned,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: gl.constexpr,
    TABLES: gl.constexpr,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    LOOKED_UP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    VALUE_DIM: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV of 128 keys of one key-value head, and dQ / scale of every query in `sum_desc`.

    Arguments as in `hopper_backward_keys`, in blocks of BLOCK queries or 64 keys: 128 queries of 64
    dimensions, or 64 of 128. NEXT_RUN goes either way. shift_desc describes the shifts from
    `gradient_rows`, in blocks of BLOCK rows. sum_desc describes float32
    `[batch, query heads, 256 tiles, 32]`, two parts of dQ a tile in the order of `part_of`, in
    blocks of some rows of a part.
    members, together, turned: the heads of a program and the order of programs, see `hopper_order`.
    key_sum, value_sum: float32 `[batch, key-value heads, 128 rows, dim]` and part_counter, a zero
    for each 64 keys, if a program does not have all query heads of a key-value head; else None.
    counter: a counter for each part of `tiles` tiles of queries of each head, zero before the call,
    which counts the programs that added to it; turn, from `turns`: the number of programs that add
    before a program does. A tile whose counter stays zero was not written.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    keys = memory_of(k_desc, CONSUMERS, HEAD_PAD)
    vals = memory_of(v_desc, CONSUMERS, VALUE_PAD)
    queries = memory_of(q_desc, STAGES, HEAD_PAD)
    gradients = memory_of(g_desc, STAGES, VALUE_PAD)
    shifts = gl.allocate_shared_memory(
        gl.bfloat16, [STAGES, BLOCK, SHIFT_COLUMNS], shift_desc.layout
    )
    changes = gl.allocate_shared_memory(q_desc.dtype, [2 * CONSUMERS, BLOCK, ROWS], _change_layout)
    parts = gl.allocate_shared_memory(
        gl.float32, [CONSUMERS, 1, 1, PART_ROWS, PART_COLUMNS], sum_desc.layout
    )
    held_ready, held_free = barriers_of(1, CONSUMERS)
    query_ready, query_free = barriers_of(STAGES, CONSUMERS)
    gradient_ready = barriers(STAGES, 1)
    change_ready, change_free = barriers_of(2, CONSUMERS, CONSUMERS)
    part_ready, part_free = barriers_of(CONSUMERS, 1)
    fence_async_shared()
    one_pass = OnePass(
        Ring(changes, None, change_ready, change_free), Ring(parts, None, part_ready, part_free),
        sum_desc, counter_ptr, turn_ptr, tiles, key_sum_ptr, value_sum_ptr, part_counter_ptr,
        members, together, turned,
    )  # fmt: skip
    _specialise(
        Program(
            Call(rows, batch_heads, heads, group, q_len, kv_len, padded, scale, S, T),
            q_desc, k_desc, v_desc, g_desc, shift_desc, None, dk_desc, dv_desc,
            Ring(keys, vals, held_ready, held_free),
            Ring(queries, shifts, query_ready, query_free),
            # Queries and their gradients are released together.
            Ring(gradients, None, gradient_ready, query_free),
            one_pass,
        ),
        Options(
            Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, False), HEAD_PAD, VALUE_PAD, BLOCK,
            CONSUMERS, HEAD_DIM=HEAD_DIM, VALUE_DIM=VALUE_DIM, ONE_PASS=True,
            LOOKED_UP=LOOKED_UP,
        ),
    )  # fmt: skip
