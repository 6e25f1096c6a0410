"""Forward attention on Hopper, in Gluon: one warp loads, groups of four warps compute.

A row of tiles is CONSUMERS x 64 queries of one head. The producer warp copies tiles of keys and
values into two rings of stages by the tensor memory accelerator; each consumer multiplies, masks
and weighs them, with the next tile's scores under way while it works on this one's. Both walk the
runs of tiles that the hook gives, so nothing but data passes between them.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)

from .elements import LN2, LOG2E, SCALARS, Hooks
from .forward import dequantising
from .gluon_names import barrier
from .hopper_common import (
    ROWS,
    Call,
    Options,
    Ring,
    barriers,
    barriers_of,
    block_at,
    matrix_of,
    memory_of,
    produce_keys,
    queries_of_row,
    release,
    rows_from,
    sides_of,
    specialise,
    store_block,
    wait_until_filled,
)
from .hopper_dropped import clear_dropped, store_rows
from .hopper_float8 import packed, raised
from .hopper_pages import Requests
from .hopper_parts import (
    dots,
    first_width,
    no_sums,
    rows_of,
    scaled,
    store_sums,
)
from .hopper_rows import Drawn, memory_of_rows, row_drawn
from .hopper_tile import added, entries_of, multiplied, tile_after, weigh
from .requests import OF_REQUESTS
from .runs import NO_TILE, first_tile, next_tile


class Program(NamedTuple):
    """State shared by the warps of a program; the ring `held` holds queries."""

    call: Call
    q_desc: gl.tensor
    k_desc: gl.tensor
    v_desc: gl.tensor
    g_desc: gl.tensor
    o_desc: gl.tensor
    lse_ptr: gl.tensor
    sink_ptr: gl.tensor
    descales: gl.tuple
    packed_ptr: gl.tensor
    row_step: gl.tensor
    head_step: gl.tensor
    held: Ring
    outputs: gl.shared_memory_descriptor
    keys: Ring
    vals: Ring
    turns: gl.shared_memory_descriptor
    drawn: Drawn


class Row(NamedTuple):
    """A consumer's 64 queries of a row of tiles, from q0 on; T are the tables that HOLD returned.

    The row of tiles begins with query `first`; there are `count` queries in all.
    """

    batch: gl.tensor
    head: gl.tensor
    q_idx: gl.tensor
    q0: gl.tensor
    kv_len: gl.tensor
    S: gl.tuple
    T: gl.tuple
    unit: gl.tensor
    query: gl.tuple
    zero: gl.tensor
    first: gl.tensor
    count: gl.tensor


@gluon.constexpr_function
def _held(wanted, columns, consumers, weighted, page, dtype):
    """How many of a query's dimensions are multiplied from registers, if these suffice.

    Products then read less from shared memory: at 256 dimensions they wait for it, and at 128 they
    draw less power. Keys in pages need registers too.
    """
    fits = wanted and consumers < 3 and not weighted and dtype.primitive_bitwidth == 16
    return 128 if fits and (columns == 128 or (columns == 256 and page == 0)) else 0


@gluon.jit
def _consume_row(C: gl.constexpr, w, done, i, turn, program, options):
    """The w-th row for consumer C, after `done` other rows: its 64 queries against every tile.

    `i` counts tiles and `turn` turns; returns both for the next row. This is a function since
    Triton's front end visits the body of a loop twice, to find what the loop changes, but a called
    function once.
    """
    keys, vals, queries, call = program.keys, program.vals, program.held, program.call
    NEXT_RUN: gl.constexpr = options.hooks.NEXT_RUN
    BLOCK_N: gl.constexpr = options.BLOCK
    WEIGHTED: gl.constexpr = options.hooks.WEIGHTED
    dtype: gl.constexpr = program.k_desc.dtype
    bits: gl.constexpr = dtype.primitive_bitwidth
    scores: gl.constexpr = matrix_of(BLOCK_N)
    products: gl.constexpr = matrix_of(BLOCK_N, bits)
    output: gl.constexpr = matrix_of(first_width(options.VALUE_DIM), bits)
    by_row: gl.constexpr = gl.SliceLayout(1, scores)
    query = block_at(queries.memory, C)
    zero = gl.zeros([ROWS, BLOCK_N], gl.float32, products)
    SUMS: gl.constexpr = options.NORMALISED or program.lse_ptr is not None

    span, lying = queries_of_row(w, call, options)
    batch, head, q0 = span.batch, span.head, span.first + C * ROWS
    kv_len = span.length
    q_rows = rows_from(q0, BLOCK_N)
    scale, factor = dequantising(call.scale, program.descales, batch, head, call.heads, call.group)
    held, unit = options.hooks.HOLD(batch, head, q_rows[:, None], kv_len, scale, call.S, call.T)
    acc = no_sums(options.VALUE_DIM, bits)
    m = gl.full([ROWS], float("-inf"), gl.float32, by_row)
    l = gl.zeros([ROWS, 8], gl.float32, matrix_of(8))
    wait_until_filled(queries, done)
    rows = rows_of(query, options.HEAD_DIM, options.HELD, products)
    # Queries in registers leave their memory to those of the next row.
    FREED: gl.constexpr = options.HELD >= options.HEAD_DIM and not options.OUTPUT_OVER_QUERIES
    if FREED:
        release(queries.free.index(0))
    row = Row(
        batch, head, q_rows[:, None], q0, kv_len, call.S, held, unit, rows, zero, span.first,
        lying.count,
    )  # fmt: skip
    run = first_tile(span, NEXT_RUN, BLOCK_N)
    first = i
    if options.APART:
        if run.tile < NO_TILE:
            early = entries_of(run.tile, row, options)
            stage = wait_until_filled(keys, i)
            key = block_at(keys.memory, stage)
            score = dots(rows, key, zero, options.HEAD_DIM, options.HELD)
            score = warpgroup_mma_wait(0, deps=[score])
            release(keys.free.index(stage))
            score = gl.convert_layout(score, scores, assert_trivial=True)
            weight, m, correction = weigh(score, m, early, run, row, options, dtype)
            if SUMS:
                l = added(l, weight, correction)
            if options.PAGE > 0:
                clear_dropped(i, run, row, program, options)
            p = packed(weight, output, dtype)
            i += 1
            run = next_tile(run, span, NEXT_RUN, BLOCK_N)
            while run.tile < NO_TILE:
                p, acc, m, l, turn = tile_after(
                    C, i, i - 1, True, True, turn, p, acc, m, l, run, row, program, options
                )
                i += 1
                run = next_tile(run, span, NEXT_RUN, BLOCK_N)
            if not FREED and not options.OUTPUT_OVER_QUERIES:
                release(queries.free.index(0))
            acc = multiplied(i - 1, p, acc, True, vals, options)
        elif not FREED and not options.OUTPUT_OVER_QUERIES:
            release(queries.free.index(0))
    else:
        # The first tile is weighed in the loop too, beside a product that the next one drops.
        p = packed(gl.zeros([ROWS, BLOCK_N], gl.float32, scores), output, dtype)
        while run.tile < NO_TILE:
            before = gl.maximum(i - 1, first)
            p, acc, m, l, turn = tile_after(
                C, i, before, i > first, i > first + 1, turn, p, acc, m, l, run, row, program,
                options,
            )  # fmt: skip
            i += 1
            run = next_tile(run, span, NEXT_RUN, BLOCK_N)
        if not FREED and not options.OUTPUT_OVER_QUERIES:
            release(queries.free.index(0))
        if i > first:
            acc = multiplied(i - 1, p, acc, i - 1 > first, vals, options)

    m = m * (unit * LOG2E) - raised(dtype)
    total = gl.convert_layout(gl.sum(l, 1), by_row)
    empty = total == 0.0
    z = gl.where(empty, 1.0, total)
    lse = total
    if not WEIGHTED:
        lse = gl.where(empty, float("-inf"), (m + gl.log2(z)) * LN2)
    if program.sink_ptr is not None:
        z += gl.exp2(gl.load(program.sink_ptr + head).to(gl.float32) * LOG2E - m)
    if options.NORMALISED:
        inverse = gl.where(empty, 0.0, factor / z)
        acc = scaled(acc, inverse)
    # This memory may still be read: to store the row before, or as queries by another warp.
    tma.store_wait(0)
    barrier()
    store_sums(block_at(program.outputs, C), acc, 1.0, options.VALUE_DIM)
    fence_async_shared()
    barrier()
    at = lying.start + q0
    if program.packed_ptr is None:
        store_block(program.o_desc, [lying.entry, head, at, 0], program.outputs, C)
    elif q0 + ROWS <= lying.count:
        store_block(program.o_desc, [lying.entry, head, at, 0], program.outputs, C)
    else:
        # Rows past the end of the request belong to the next request.
        store_rows(program, lying.count - q0, head, at, C, options)
    if program.lse_ptr is not None:
        of_head = program.lse_ptr + (lying.entry * call.heads + head).to(gl.int64) * call.q_len
        gl.store(of_head + lying.start + q_rows, lse, mask=q_rows < lying.count)
    if options.OUTPUT_OVER_QUERIES:
        tma.store_wait(0)
        release(queries.free.index(0))
    return i, turn


@gluon.jit
def _consume(C: gl.constexpr, program, options):
    """Consumer C: its 64 queries of every row against every tile of the row's runs.

    With TURNS the consumers issue their products one after the other, so that one multiplies
    while another weighs.
    """
    i = gl.to_tensor(0)
    turn = gl.to_tensor(0)
    done = gl.to_tensor(0)
    w = gl.program_id(0)
    if not options.PERSISTENT:
        _consume_row(C, w, done, i, turn, program, options)
    else:
        while w < program.call.rows * program.call.batch_heads:
            i, turn = _consume_row(C, w, done, i, turn, program, options)
            w = row_drawn(done, program.drawn)
            done += 1
    tma.store_wait(0)


@gluon.jit(
    do_not_specialize=[
        *("q_len", "kv_len", "rows", "batch_heads", "head_step", "row_step"),
        *OF_REQUESTS, *SCALARS,
    ]
)  # fmt: skip
def hopper_forward(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    sink_ptr,
    counter_ptr,
    packed_ptr,
    T,
    descales,
    pages,
    scale,
    q_len,
    kv_len,
    rows,
    batch_heads,
    batches,
    page_count,
    most_pages,
    table_stride,
    head_step,
    row_step,
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
    LOOKED_UP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    VALUE_DIM: gl.constexpr,
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
    HELD: gl.constexpr,
    APART: gl.constexpr,
    PAGE: gl.constexpr,
    PIECE: gl.constexpr,
    FEW: gl.constexpr,
):  # fmt: skip
    """The results of `forward`; `scale` must be positive.

    A program computes one row, `rows * batch_heads` in all; PERSISTENT programs, as many as run at
    once, draw rows from a counter that is zero before and after. With OUTPUT_OVER_QUERIES, for
    equal dimensions or keys of 192 and values of 128, both share memory. With OVERLAP a tile is
    weighed while the tile before is multiplied by its values; without, the other consumers hide
    what a consumer waits for. HELD, queries are multiplied from registers where these suffice.
    APART, the first tile of a row is compiled by itself, before the loop. LOOKED_UP, the hook
    MASKED looks bits of pairs up (`kept_bits.py`).

    q, k, v and o are tensor descriptors of `[batch, heads, length, dim]` in blocks of 64 queries
    or BLOCK_N keys by HEAD_PAD or VALUE_PAD; lse `[batch, heads, q_len]` is contiguous float32, or
    None; `sink_ptr` holds a logit for each head that joins the normaliser, or is None. `descales`,
    WEIGHTED and NORMALISED as in `forward`. The options must give `maxnreg`, from which the warps'
    registers are dealt out.

    With a PAGE, keys and values lie in pages, and queries may be packed, as in `forward`, which
    also explains FEW; k and v are described in blocks of PIECE keys, of which pages and tiles are
    made, by 64 dimensions at most. `packed_ptr` is the output's address if queries are packed, else
    None: `head_step` rows of it from a head to the next, `row_step` from a query to the next.

    With float8 q and k, v comes from `float8_values`, in blocks of VALUE_PAD dimensions by BLOCK_N
    keys, o has half precision, and the weights are a softmax's.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    # float8 instructions take 32 dimensions, and values are padded in the order they come in.
    FLOAT8: gl.constexpr = q_desc.dtype == gl.float8e4nv
    queries = memory_of(q_desc, CONSUMERS, HEAD_PAD)
    if OUTPUT_OVER_QUERIES:
        outputs = queries[: sides_of(VALUE_PAD)]
    else:
        outputs = memory_of(o_desc, CONSUMERS, VALUE_PAD)
    TOGETHER: gl.constexpr = BLOCK_N if PAGE else None
    keys = memory_of(k_desc, STAGES, HEAD_PAD, TOGETHER)
    vals = memory_of(v_desc, STAGES, BLOCK_N if FLOAT8 else VALUE_PAD, TOGETHER)
    query_ready, query_free = barriers_of(1, CONSUMERS)
    key_ready, key_free = barriers_of(STAGES, CONSUMERS)
    value_ready, value_free = barriers_of(STAGES, CONSUMERS)
    turns = barriers(CONSUMERS, 1) if TURNS else None
    drawn = memory_of_rows(counter_ptr) if PERSISTENT else None
    fence_async_shared()
    specialise(
        _consume,
        produce_keys,
        CONSUMERS,
        (CONSUMER_REGISTERS, PRODUCER_REGISTERS),
        Program(
            Call(
                rows, batch_heads, heads, group, q_len, kv_len, None, scale, S, T,
                Requests(pages, batches, page_count, most_pages, table_stride),
            ),
            q_desc, k_desc, v_desc, None, o_desc, lse_ptr, sink_ptr, descales,
            packed_ptr, row_step, head_step,
            Ring(queries, None, query_ready, query_free), outputs,
            Ring(keys, None, key_ready, key_free), Ring(vals, None, value_ready, value_free), turns,
            drawn,
        ),
        Options(
            Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED), HEAD_PAD, VALUE_PAD, BLOCK_N,
            CONSUMERS, HEADS_TOGETHER, PERSISTENT, NORMALISED, OVERLAP, AHEAD, TURNS,
            OUTPUT_OVER_QUERIES, APART,
            HEAD_DIM=HEAD_PAD if FLOAT8 else HEAD_DIM, VALUE_DIM=VALUE_PAD if FLOAT8 else VALUE_DIM,
            LOOKED_UP=LOOKED_UP, PAGE=PAGE, PIECE=PIECE, FEW=FEW,
            HELD=_held(HELD, HEAD_PAD, CONSUMERS, WEIGHTED, PAGE, q_desc.dtype),
        ),
    )  # fmt: skip
