"""Rows of tiles that a program of a warp-specialised kernel computes: one, or those it draws.

Persistent programs, as many as run at once, begin with a row each. The producer draws each further
row from a counter that all programs share, when it has requested the last tile of the row before,
and hands it to the consumers. So long and short rows balance in any order, and a row gives the same
bits whichever program computes it.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

_PLACES = gl.constexpr(4)
"""Rows in memory at once: three, since the producer requests the queries, or keys, of row n + 2
only when all consumers have begun with row n."""

_lane = gl.constexpr(gl.BlockedLayout([1], [32], [1], [0]))
_thread = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


class Drawn(NamedTuple):
    """Rows drawn by the producer: the counter, and the rows on their way to the consumers."""

    counter_ptr: gl.tensor
    rows: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor


@gluon.jit
def memory_of_rows(counter_ptr):
    """The memory of rows on their way."""
    rows = gl.allocate_shared_memory(gl.int32, [_PLACES, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = gl.allocate_shared_memory(gl.int64, [_PLACES, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(_PLACES):
        mbarrier.init(ready.index(place), count=1)
    return Drawn(counter_ptr, rows, ready)


@gluon.jit
def _drawn(counter_ptr, total):
    """How many rows were drawn before; the warp's first lane asks. The counter is zero again after
    `total` draws: programs draw once after each row, the last time in vain."""
    return gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        .reg .u32 v;
        mov.u32 v, %laneid;
        setp.eq.u32 p, v, 0;
        @p atom.relaxed.gpu.global.inc.u32 v, [$1], $2;
        shfl.sync.idx.b32 $0, v, 0, 31, 0xffffffff;
        }""",
        "=r,l,r",
        [counter_ptr.to(gl.int64), total - 1],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def draw_row(done, total, drawn):
    """The producer's next row, after `done + 1` rows; past the last of `total`, none is left."""
    row = gl.num_programs(0) + _drawn(drawn.counter_ptr, total)
    place = done % _PLACES
    drawn.rows.index(place).store(gl.full([1], row, gl.int32, _lane))
    mbarrier.arrive(drawn.ready.index(place), count=1)
    return row


@gluon.jit
def row_drawn(done, drawn):
    """A consumer's next row, after `done + 1` rows."""
    place = done % _PLACES
    mbarrier.wait(drawn.ready.index(place), (done // _PLACES) & 1)
    return gl.max(drawn.rows.index(place).load(_thread), 0)


@triton.jit
def no_rows_drawn(out_ptr):
    """The counter before the first draw."""
    tl.store(out_ptr, 0)
