"""What the warp-specialised kernels share: layouts, positions, and rings of stages."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .gluon_names import barrier

ROWS = gl.constexpr(64)
"""Queries of a consumer: what one matrix instruction of a warpgroup computes."""

block_layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
"""How descriptors lay a block of half precision elements into shared memory."""


def byte_layout(columns):
    """How descriptors lay a block of rows of so many bytes, 64 or more, into shared memory."""
    return gl.NVMMASharedLayout(min(columns, 128), element_bitwidth=8, rank=4)


@gluon.constexpr_function
def matrix_of(columns, element_bits=16):
    """The layout of a matrix product of a warpgroup with so many columns, of such elements."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 256 // element_bits]
    )


@gluon.jit
def columns_from(first, N: gl.constexpr):
    """The positions of a tile's N columns, `[1, N]`, in the layout of its products.

    A thread's are sums of two numbers, computed here, and of constants. Left to itself the compiler
    would hold each thread's part of every column in a register of its own.
    """
    columns: gl.constexpr = gl.SliceLayout(0, matrix_of(N))
    by_eight: gl.constexpr = gl.arange(0, N, columns).reshape([N // 8, 8]).type.layout
    within = first + gl.arange(0, 8, gl.SliceLayout(0, by_eight))
    within = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [within], dtype=gl.int32, is_pure=True, pack=1
    )
    eights = 8 * gl.arange(0, N // 8, gl.SliceLayout(1, by_eight))
    positions = (within[None, :] + eights[:, None]).reshape([N])
    positions = gl.convert_layout(positions, columns, assert_trivial=True)[None, :]
    # Which the compiler does not see; two neighbours of a thread are loaded at once.
    return gl.max_contiguous(gl.multiple_of(positions, [1, 8]), [1, 8])


@gluon.jit
def rows_from(first, N: gl.constexpr):
    """The positions of ROWS rows of a tile of N columns, `[ROWS, 1]`; made likewise."""
    rows: gl.constexpr = gl.SliceLayout(1, matrix_of(N))
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
def stage_of(i, STAGES: gl.constexpr):
    """Stage of the i-th tile, and the phase in which its barriers complete."""
    return i % STAGES, (i // STAGES) & 1


@gluon.jit
def release(free):
    """Give memory back once every warp of the consumer is past its reads."""
    barrier()
    mbarrier.arrive(free, count=1)


@gluon.jit
def ring_of_barriers(STAGES: gl.constexpr, CONSUMERS: gl.constexpr, PRODUCERS: gl.constexpr = 1):
    """The barriers of a ring: of stages all producers have filled, and all consumers have left."""
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=PRODUCERS)
        mbarrier.init(free.index(stage), count=CONSUMERS)
    return ready, free


@gluon.jit
def rows_of_program(shape, PERSISTENT: gl.constexpr):
    """First, last and step of the rows a program computes."""
    first = gl.program_id(0)
    if PERSISTENT:
        return first, shape[0] * shape[1], gl.num_programs(0)
    else:
        return first, first + 1, gl.to_tensor(1)


@gluon.jit
def each_time(number, i):
    """A number that the compiler takes for a new one at each step i.

    What follows from it, as the descriptors of what is held, is computed where it is needed, not
    once before the loop, to be kept in memory for want of registers.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r,r", [gl.to_tensor(number), i], dtype=gl.int32, is_pure=True, pack=1
    )
