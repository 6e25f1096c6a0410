"""Sums in memory to which programs of `hopper_gradients` add in a fixed order.

Two warps add parts of dQ: each part of a tile of queries has a counter of the programs that added
to it, and a program adds when the counter reaches its turn. Consumers add dK and dV of the query
heads that share keys, one head after the other.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from .gluon_names import add_to_global, barrier, copy_to_global
from .hopper_common import ROWS
from .hopper_order import CONSUMERS, program_in_order, tile_in_order
from .runs import NO_TILE, SpanEitherWay, first_tile, next_tile

sum_layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=4)
"""How descriptors lay a consumer's part of dQ into shared memory."""

PART_ROWS = gl.constexpr(128)
PART_COLUMNS = gl.constexpr(32)
"""How a part, of 64 by 64 numbers, lies in memory: see `part_of`."""

_lanes = gl.constexpr(gl.BlockedLayout([1], [32], [1], [0]))
_threads = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@gluon.jit
def part_of(dq):
    """A part of dQ in its order in memory: four numbers of a thread lie side by side.

    A thread has two columns of every eight, in two rows: stored row by row, the numbers of
    different threads would conflict. Rows are 16 a + 8 b + c and columns 8 d + 2 e + f of a part.
    """
    apart = dq.reshape([4, 2, 8, 8, 4, 2])  # a, b, c, d, e, f
    return apart.permute((0, 3, 2, 4, 1, 5)).reshape([PART_ROWS, PART_COLUMNS])


@gluon.jit
def _wait_for_turn(counter, turn, WARPS: gl.constexpr):
    """Wait until `turn` programs have added to a tile, and their sums are visible."""
    layout: gl.constexpr = _lanes if WARPS == 1 else _threads
    at = counter.to(gl.int64) + gl.zeros([32 * WARPS], gl.int64, layout)
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        .reg .s32 v;
        again:
        ld.acquire.gpu.global.s32 v, [$1];
        setp.lt.s32 p, v, $2;
        @p bra again;
        fence.proxy.async.global;
        mov.s32 $0, v;
        }""",
        "=r,l,r",
        [at, turn],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _with_others(own, sum_ptr, first, part, parts, COLUMNS: gl.constexpr):
    """A tensor of `sum_of_parts`."""
    layout: gl.constexpr = own.type.layout
    row = first + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    column = gl.arange(0, own.shape[1], gl.SliceLayout(0, layout))
    at = sum_ptr + row.to(gl.int64)[:, None] * COLUMNS + column[None, :]
    if part > 0:
        own += gl.load(at)
    if part < parts - 1:
        gl.store(at, own)
    return own


@gluon.jit
def sum_of_parts(own, sum_ptr, counter, first, part, parts, COLUMNS: gl.constexpr):
    """Rows of dK or dV of a consumer, plus the sums of earlier parts of its group of heads.

    The sum is stored for the next part. sum_ptr: float32, of rows of COLUMNS; counter: of parts
    that added to these rows.
    """
    _wait_for_turn(counter, part, 4)
    total = ()
    for each in gl.static_range(len(own)):
        # There are two tensors at most.
        columns = sum_ptr + each * own[0].shape[1]
        total = total + (_with_others(own[each], columns, first, part, parts, COLUMNS),)
    return total


@gluon.jit
def end_part(counter):
    """Once all threads of a consumer have stored their sums, let the next part add."""
    barrier()
    thread = gl.arange(0, 128, _threads)
    at = counter.to(gl.int64) + gl.zeros([128], gl.int64, _threads)
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.eq.s32 p, $2, 0;
        @p fence.acq_rel.gpu;
        @p red.release.gpu.global.add.s32 [$1], 1;
        mov.s32 $0, 0;
        }""",
        "=r,l,r",
        [at, thread],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _end_turn(counter):
    """Let the next program add once this warp's additions to a tile are in memory."""
    lane = gl.arange(0, 32, _lanes)
    at = counter.to(gl.int64) + gl.zeros([32], gl.int64, _lanes)
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        cp.async.bulk.wait_group 0;
        fence.proxy.async.global;
        bar.warp.sync 0xffffffff;
        setp.eq.s32 p, $2, 0;
        @p red.release.gpu.global.add.s32 [$1], 1;
        mov.s32 $0, 0;
        }""",
        "=r,l,r",
        [at, lane],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def sum_up(C: gl.constexpr, program, options):
    """The warp that adds consumer C's parts of dQ to the sums, each when its turn has come."""
    NEXT_RUN: gl.constexpr = options.hooks.NEXT_RUN
    BLOCK: gl.constexpr = options.BLOCK
    call, one, q_len = program.call, program.one_pass, program.call.q_len
    ROWS_AT_ONCE: gl.constexpr = one.sum_desc.block_shape[2]
    batch, first_head, k0, k1, from_last = program_in_order(program)
    turns = one.turn_ptr + (from_last * call.rows + k0 // (CONSUMERS * ROWS)) * one.tiles
    part = one.parts.memory.index(C)
    i = gl.to_tensor(0)
    for head in range(first_head, first_head + one.members):
        counters = one.counter_ptr
        counters += (batch * call.heads * call.group + head) * one.tiles * CONSUMERS + C
        span = SpanEitherWay(from_last, k0, k1, batch, head, q_len, call.S, call.T)
        run = first_tile(span, NEXT_RUN, BLOCK)
        tile = tile_in_order(run.tile, from_last, q_len, BLOCK)
        turn = gl.load(turns + tile, mask=run.tile < NO_TILE)
        while run.tile < NO_TILE:
            counter = counters + tile * CONSUMERS
            first = (tile * CONSUMERS + C) * PART_ROWS
            before = turn
            run = next_tile(run, span, NEXT_RUN, BLOCK)
            # Loaded ahead of time: later programs wait as long as this warp does.
            tile = tile_in_order(run.tile, from_last, q_len, BLOCK)
            turn = gl.load(turns + tile, mask=run.tile < NO_TILE)
            _wait_for_turn(counter, before, 1)
            mbarrier.wait(one.parts.ready.index(C), i & 1)
            for r in gl.static_range(0, PART_ROWS, ROWS_AT_ONCE):
                at = [batch, head, first + r, 0]
                rows = part.slice(r, ROWS_AT_ONCE, dim=2)
                if before == 0:
                    copy_to_global(one.sum_desc, at, rows)
                else:
                    add_to_global(one.sum_desc, at, rows)
            tma.store_wait(0)
            mbarrier.arrive(one.parts.free.index(C), count=1)
            _end_turn(counter)
            i += 1
