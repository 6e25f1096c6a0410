"""The warp of `hopper_gradients` that adds parts of dQ to sums in memory, in a fixed order.

Each tile of queries has a counter of the programs that added to it. A program adds to it when as
many have as its turn says.
"""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from .hopper_backward import _keys
from .hopper_forward import ROWS
from .runs import NO_TILE

CONSUMERS = gl.constexpr(2)
"""Each has a part of every tile of dQ."""

sum_layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=4)
"""How descriptors lay a consumer's part of dQ into shared memory."""

_lanes = gl.constexpr(gl.BlockedLayout([1], [32], [1], [0]))


@builtin
def _add_to_global(descriptor, coordinates, source, _semantic=None):
    """Add a block of shared memory to a tensor, by the tensor memory accelerator."""
    places = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, descriptor.handle, places, source.handle)


@gluon.jit
def _wait_for_turn(counter, turn):
    """Until `turn` programs have added to a tile, and what they added is seen."""
    at = counter.to(gl.int64) + gl.zeros([32], gl.int64, _lanes)
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
def _end_turn(counter):
    """Once what this warp added to a tile is in memory, let the next program add."""
    lane = gl.arange(0, 32, _lanes)
    at = counter.to(gl.int64) + gl.zeros([32], gl.int64, _lanes)
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        cp.async.bulk.wait_group 0;
        fence.proxy.async.global;
        bar.warp.sync 0xffffffff;
        setp.eq.s32 p, $2, 0;
        fence.acq_rel.gpu;
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
def sum_up(
    target,
    parts,
    part_barriers,
    shape,
    S,
    T,
    NEXT_RUN: gl.constexpr,
    BLOCK: gl.constexpr,
    HEADS_TOGETHER: gl.constexpr,
):
    """The warp that adds parts of dQ to the sums, tile after tile, each when its turn has come."""
    sum_desc, counter_ptr, turn_ptr, tiles = target
    part_ready, part_free = part_barriers
    _rows, _batch_heads, kv_heads, group, _kv_len, q_len, _padded = shape
    batch, kv_head, k0, k1 = _keys(gl.program_id(0), shape, CONSUMERS, HEADS_TOGETHER, True)
    turns = turn_ptr + k0 // (CONSUMERS * ROWS) * tiles
    i = gl.to_tensor(0)
    for g in range(0, group):
        head = kv_head * group + g
        counters = counter_ptr + (batch * kv_heads * group + head) * tiles
        j, end, _partial = NEXT_RUN(gl.to_tensor(0), k0, k1, batch, head, q_len, S, T, BLOCK)
        while j < NO_TILE:
            turn = gl.load(turns + j)
            _wait_for_turn(counters + j, turn)
            mbarrier.wait(part_ready.index(0), i & 1)
            for c in gl.static_range(CONSUMERS):
                if BLOCK == ROWS:
                    first = [batch, head, j * BLOCK, c * sum_desc.block_shape[3]]
                else:
                    first = [batch, head, j * BLOCK + c * ROWS, 0]
                if turn == 0:
                    tma.async_copy_shared_to_global(sum_desc, first, parts.index(c))
                else:
                    _add_to_global(sum_desc, first, parts.index(c))
            tma.store_wait(0)
            mbarrier.arrive(part_free.index(0), count=1)
            _end_turn(counters + j)
            i += 1
            j += 1
            if j == end:
                j, end, _partial = NEXT_RUN(j, k0, k1, batch, head, q_len, S, T, BLOCK)
