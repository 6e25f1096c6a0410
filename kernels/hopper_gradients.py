"""All gradients in one pass on Hopper, in Gluon: five matrix products of a tile instead of seven.

As in `hopper_keys` a producer warp fills rings of tiles of queries, and two consumers hold 64
keys each. Each also hands its gradients of scores to the other through shared memory, so that each
has half of a tile of dQ from all 128 keys: half its queries, or of 64 queries half the columns.
What each computed a warp of its own adds to sums in float32. Programs add to a tile in the order
they were started: the same bits every time.

Nothing but tiles is read from shared memory, which the products keep busy: what is subtracted from
a row of scores, or of dO . v, is one more step of its products.

A program only ever waits for earlier ones, and they end without it. In which order they are
started, `hopper_order` says.
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

from .backward import weight_gradient, weights
from .forward import SCALARS
from .gluon_names import barrier, copy_to_global
from .gradient_rows import PIECES, SHIFT_COLUMNS
from .hopper_common import (
    ROWS,
    columns_from,
    each_time,
    matrix_of,
    release,
    ring_of_barriers,
    rows_from,
    stage_of,
)
from .hopper_keys import produce_queries
from .hopper_order import CONSUMERS, program_in_order, tile_in_order
from .hopper_shifts import sum_of_pieces
from .hopper_sums import PART_COLUMNS, PART_ROWS, end_part, part_of, sum_of_parts, sum_up
from .runs import NO_TILE

_COLUMNS = gl.constexpr(64)  # of a consumer's part of dQ, which has as many rows

_change_layout = gl.constexpr(gl.NVMMASharedLayout(128, 16, rank=2))


@gluon.jit
def _part_of_queries(
    C: gl.constexpr,
    mine,
    i,
    changes,
    keys,
    change_ready,
    HEAD_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
):
    """Consumer C's part of dQ of the i-th tile, under way; of the one before the first, anything.

    A product cannot be under way on one side of a branch alone.
    """
    slot, phase = stage_of(i + 2, 2)
    mbarrier.wait(change_ready.index(slot), phase ^ 1, pred=i >= 0)
    own = changes.index(slot * CONSUMERS + mine)
    other = changes.index(slot * CONSUMERS + 1 - mine)
    own_key = keys.index(mine).reshape([ROWS, HEAD_PAD])
    other_key = keys.index(1 - mine).reshape([ROWS, HEAD_PAD])
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
def _store_part(C: gl.constexpr, i, dq, parts, part_free):
    """Store consumer C's part of dQ of the i-th tile for the warp that adds it."""
    mbarrier.wait(part_free.index(C), (i & 1) ^ 1)
    parts.index(C).reshape([PART_ROWS, PART_COLUMNS]).store(part_of(dq))


@gluon.jit
def _hand_over(C: gl.constexpr, i, part_ready, change_free):
    """The part of the i-th tile is stored, and what its product read may make way.

    Of the one before the first there is none.
    """
    fence_async_shared()
    barrier()
    mbarrier.arrive(part_ready.index(C), count=1, pred=i >= 0)
    mbarrier.arrive(change_free.index((i + 2) % 2), count=1, pred=i >= 0)


@gluon.jit
def _store_gradients(C: gl.constexpr, dk, dv, at, targets, held, held_free):
    """Store consumer C's rows of dK and dV over its keys and values, and from there."""
    keys, values = held
    # Both are past their products with these keys.
    release(held_free.index(0))
    mbarrier.wait(held_free.index(0), 0)
    keys.index(C).reshape(dk.shape).store(dk.to(keys.dtype))
    values.index(C).reshape(dv.shape).store(dv.to(values.dtype))
    fence_async_shared()
    barrier()
    copy_to_global(targets[0], at, keys.index(C))
    copy_to_global(targets[1], at, values.index(C))
    tma.store_wait(0)


@gluon.jit
def _consume(
    C: gl.constexpr,
    targets,
    held,
    rings,
    changes,
    parts,
    held_barriers,
    query_barriers,
    gradient_barriers,
    change_barriers,
    part_barriers,
    shape,
    S,
    T,
    scale,
    HOLD: gl.constexpr,
    MASKED: gl.constexpr,
    BIASED: gl.constexpr,
    NEXT_RUN: gl.constexpr,
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
    order,
):
    """Consumer C: dK and dV of its 64 keys; its part of dQ of each tile, one tile later.

    By then the other consumer has mostly given what it takes, and neither waits long.
    """
    _dk_desc, _dv_desc, key_sum_ptr, value_sum_ptr, part_counter_ptr = targets
    keys, values = held
    queries, gradients, shifts, _none = rings
    held_ready, held_free = held_barriers
    query_ready, query_free = query_barriers
    gradient_ready, _gradient_free = gradient_barriers
    change_ready, change_free = change_barriers
    part_ready, part_free = part_barriers
    scores: gl.constexpr = matrix_of(BLOCK)
    of_keys: gl.constexpr = matrix_of(HEAD_PAD)
    of_values: gl.constexpr = matrix_of(VALUE_PAD)
    dtype: gl.constexpr = keys.dtype
    # Stored before dK is made, parts of dQ do not wait for memory that its product reads.
    AHEAD: gl.constexpr = HEAD_PAD == 128
    to_scores = sum_of_pieces(0, scores)
    to_products = sum_of_pieces(PIECES, scores)
    rows, _batch_heads, kv_heads, group, kv_len, q_len, _padded = shape
    zero = gl.zeros([ROWS, BLOCK], gl.float32, scores)
    batch, first_head, k0, k1, from_last = program_in_order(shape, order)
    kv_idx = rows_from(k0 + C * ROWS, BLOCK)[:, None]
    dk = gl.zeros([ROWS, HEAD_PAD], gl.float32, of_keys)
    dv = gl.zeros([ROWS, VALUE_PAD], gl.float32, of_values)
    i = gl.to_tensor(0)
    mbarrier.wait(held_ready.index(0), 0)
    for member in range(0, order[0]):
        head = first_head + member
        known, unit = HOLD(batch, head, kv_idx, kv_len, scale, S, T)
        j, end, partial = NEXT_RUN(
            gl.to_tensor(0), from_last, k0, k1, batch, head, q_len, S, T, BLOCK
        )
        while j < NO_TILE:
            stage, phase = stage_of(i, STAGES)
            mine = each_time(C, i)
            key = keys.index(mine).reshape([ROWS, HEAD_PAD])
            value = values.index(mine).reshape([ROWS, VALUE_PAD])
            query = queries.index(stage).reshape([BLOCK, HEAD_PAD])
            gradient = gradients.index(stage).reshape([BLOCK, VALUE_PAD])
            shift = shifts.index(stage).permute((1, 0))
            mbarrier.wait(query_ready.index(stage), phase)
            # What is subtracted comes last: where it is large, sums are rounded to it only once.
            product = warpgroup_mma(key, query.permute((1, 0)), zero, use_acc=False, is_async=True)
            product = warpgroup_mma(to_scores, shift, product, is_async=True)
            mbarrier.wait(gradient_ready.index(stage), phase)
            dp = warpgroup_mma(value, gradient.permute((1, 0)), zero, use_acc=False, is_async=True)
            dp = warpgroup_mma(to_products, shift, dp, is_async=True)
            m = tile_in_order(j, from_last, each_time(q_len, i), BLOCK) * BLOCK
            at = (batch, head, columns_from(m, BLOCK), kv_idx, kv_len)
            product = warpgroup_mma_wait(2, deps=[product])
            p = weights(product, 0.0, at, S, known, unit, MASKED, BIASED, partial, False)
            weight = gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, of_values, 2))
            dv = warpgroup_mma(weight, gradient, dv, is_async=True)
            dp = warpgroup_mma_wait(1, deps=[dp])
            ds = weight_gradient(p, dp, 0.0, 1.0, at, S, known, MASKED, partial, False)
            if k0 + CONSUMERS * ROWS > kv_len:
                # Keys past the length have weights nobody bounds; dQ would have them times zero.
                ds = gl.where(kv_idx < kv_len, ds, 0.0)
            ds = ds.to(dtype)
            slot, phase = stage_of(i, 2)
            mbarrier.wait(change_free.index(slot), phase ^ 1)
            changes.index(slot * CONSUMERS + mine).permute((1, 0)).store(ds)
            fence_async_shared()
            release(change_ready.index(slot))
            change = gl.convert_layout(ds, gl.DotOperandLayout(0, of_keys, 2))
            dq = _part_of_queries(C, mine, i - 1, changes, keys, change_ready, HEAD_PAD, BLOCK)
            if AHEAD:
                dq, dv = warpgroup_mma_wait(0, deps=[dq, dv])
                if i > 0:
                    _store_part(C, i - 1, dq, parts, part_free)
                dk = warpgroup_mma(change, query, dk, is_async=True)
            else:
                dk = warpgroup_mma(change, query, dk, is_async=True)
                dq, dv = warpgroup_mma_wait(1, deps=[dq, dv])
                if i > 0:
                    _store_part(C, i - 1, dq, parts, part_free)
            _hand_over(C, i - 1, part_ready, change_free)
            dk = warpgroup_mma_wait(0, deps=[dk])
            release(query_free.index(stage))
            i += 1
            j += 1
            if j == end:
                j, end, partial = NEXT_RUN(j, from_last, k0, k1, batch, head, q_len, S, T, BLOCK)
    if i > 0:
        mine = each_time(C, i)
        last = _part_of_queries(C, mine, i - 1, changes, keys, change_ready, HEAD_PAD, BLOCK)
        last = warpgroup_mma_wait(0, deps=[last])
        _store_part(C, i - 1, last, parts, part_free)
        _hand_over(C, i - 1, part_ready, change_free)

    kv_head = first_head // group
    at = [batch, kv_head, each_time(k0, i) + C * ROWS, 0]
    if key_sum_ptr is None:
        _store_gradients(C, dk * scale, dv, at, targets, held, held_free)
    else:
        count = group // order[0]
        part = first_head % group // order[0]
        row = (batch * kv_heads + kv_head) * rows + k0 // (CONSUMERS * ROWS)
        first = row * (CONSUMERS * ROWS) + C * ROWS
        counter = part_counter_ptr + row * CONSUMERS + C
        dk = sum_of_parts(dk, key_sum_ptr, counter, first, part, count, HEAD_PAD)
        dv = sum_of_parts(dv, value_sum_ptr, counter, first, part, count, VALUE_PAD)
        end_part(counter)
        if part == count - 1:
            _store_gradients(C, dk * scale, dv, at, targets, held, held_free)


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
    HEAD_PAD: gl.constexpr,
    VALUE_PAD: gl.constexpr,
    BLOCK: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """dK and dV of 128 keys of one key-value head, and dQ / scale of every query in `sum_desc`.

    Arguments as of `hopper_backward_keys`, in blocks of BLOCK queries or 64 keys: 128 queries of 64
    dimensions, or 64 of 128. NEXT_RUN goes either way. shift_desc describes what
    `gradient_rows` stored, in blocks of BLOCK rows. sum_desc describes float32
    `[batch, query heads, 256 tiles, 32]`, two parts of dQ a tile in the order of `part_of`, in
    blocks of some rows of a part.
    members, together, turned: which heads a program has and how they are started, see
    `hopper_order`. key_sum, value_sum: float32 `[batch, key-value heads, 128 rows, dim]` where a
    program has not all query heads of a key-value head, or None, and then part_counter: zeros for
    each 64 keys. counter: zeros for each part of
    `tiles` tiles of queries of each head, which become the number of programs that added to it;
    turn: of `turns`, how many do so before. A tile with a counter of zero was not written.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    dtype: gl.constexpr = q_desc.dtype
    keys = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, HEAD_PAD], k_desc.layout)
    values = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, VALUE_PAD], v_desc.layout)
    queries = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, HEAD_PAD], q_desc.layout)
    gradients = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK, VALUE_PAD], g_desc.layout)
    shifts = gl.allocate_shared_memory(
        gl.bfloat16, [STAGES, BLOCK, SHIFT_COLUMNS], shift_desc.layout
    )
    changes = gl.allocate_shared_memory(dtype, [2 * CONSUMERS, BLOCK, ROWS], _change_layout)
    parts = gl.allocate_shared_memory(
        gl.float32, [CONSUMERS, 1, 1, PART_ROWS, PART_COLUMNS], sum_desc.layout
    )
    held_barriers = ring_of_barriers(1, CONSUMERS)
    query_barriers = ring_of_barriers(STAGES, CONSUMERS)
    gradient_ready, _gradient_free = ring_of_barriers(STAGES, CONSUMERS)
    # Queries and their gradients make way together.
    gradient_barriers = (gradient_ready, query_barriers[1])
    change_barriers = ring_of_barriers(2, CONSUMERS, CONSUMERS)
    part_barriers = ring_of_barriers(CONSUMERS, 1)
    fence_async_shared()

    sources = (q_desc, k_desc, v_desc, g_desc, shift_desc, None)
    targets = (dk_desc, dv_desc, key_sum_ptr, value_sum_ptr, part_counter_ptr)
    sums = (sum_desc, counter_ptr, turn_ptr, tiles)
    held = (keys, values)
    rings = (queries, gradients, shifts, None)
    shape = (rows, batch_heads, heads, group, kv_len, q_len, padded)
    order = (members, together, turned)
    gl.warp_specialize(
        [
            (_consume, (
                0, targets, held, rings, changes, parts, held_barriers, query_barriers,
                gradient_barriers, change_barriers, part_barriers, shape, S, T, scale, HOLD, MASKED,
                BIASED, NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK, STAGES, order,
            )),
            (_consume, (
                1, targets, held, rings, changes, parts, held_barriers, query_barriers,
                gradient_barriers, change_barriers, part_barriers, shape, S, T, scale, HOLD, MASKED,
                BIASED, NEXT_RUN, HEAD_PAD, VALUE_PAD, BLOCK, STAGES, order,
            )),
            (produce_queries, (
                sources, held, rings, held_barriers, query_barriers, gradient_barriers, shape, S,
                T, NEXT_RUN, BLOCK, STAGES, CONSUMERS, None, 1, order,
            )),
            (sum_up, (
                0, sums, parts, part_barriers, shape, S, T, NEXT_RUN, BLOCK, order,
            )),
            (sum_up, (
                1, sums, parts, part_barriers, shape, S, T, NEXT_RUN, BLOCK, order,
            )),
        ],
        [4, 1, 1, 1],
        [240, 24, 24, 24],
    )  # fmt: skip
