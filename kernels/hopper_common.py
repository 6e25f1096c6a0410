"""Parts of all warp-specialised kernels: layouts, positions, rings of stages, groups of warps.

The first group of four warps and those like it are consumers, which compute; one warp is the
producer, which copies tiles into rings by the tensor memory accelerator.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .elements import Hooks
from .forward import tile_of_program
from .gluon_names import barrier_to_arrive, builtin, copy_to_global, copy_to_shared
from .hopper_pages import Lying, Requests, load_pieces, pages_of_tile, request_of_row
from .hopper_rows import draw_row
from .runs import NO_TILE, Span, first_tile, next_tile

ROWS = gl.constexpr(64)
"""Queries of a consumer: what one matrix instruction of a warpgroup computes."""


def block_layout(columns):
    """How descriptors lay blocks of half precision, in this many columns, into shared memory."""
    return gl.NVMMASharedLayout(min(2 * columns, 128), element_bitwidth=16, rank=4)


def byte_layout(columns):
    """The layout in shared memory that descriptors give rows of this many bytes, 64 or more."""
    return gl.NVMMASharedLayout(min(columns, 128), element_bitwidth=8, rank=4)


@gluon.constexpr_function
def matrix_of(columns, element_bits=16):
    """The layout of a warpgroup's matrix product with this many columns of such elements."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 256 // element_bits]
    )


@gluon.jit
def columns_from(first, N: gl.constexpr, PLAIN: gl.constexpr = False):
    """The positions of a tile's N columns, `[1, N]`, in the layout of its products.

    PLAIN, the compiler sees how positions are made, and derives the places of bits from it.
    Otherwise positions are sums of constants and of two numbers that each thread computes here:
    the compiler by itself would hold each of a thread's positions in a register.
    """
    columns: gl.constexpr = gl.SliceLayout(0, matrix_of(N))
    if PLAIN:
        return (first + gl.arange(0, N, columns))[None, :]
    by_eight: gl.constexpr = gl.arange(0, N, columns).reshape([N // 8, 8]).type.layout
    within = first + gl.arange(0, 8, gl.SliceLayout(0, by_eight))
    within = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [within], dtype=gl.int32, is_pure=True, pack=1
    )
    eights = 8 * gl.arange(0, N // 8, gl.SliceLayout(1, by_eight))
    positions = (within[None, :] + eights[:, None]).reshape([N])
    positions = gl.convert_layout(positions, columns, assert_trivial=True)[None, :]
    # The compiler cannot see this; with it, two neighbours of a thread are loaded at once.
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


class Ring(NamedTuple):
    """Stages of shared memory, filled in turn; all consumers leave a stage before it is refilled.

    A stage is one tile of `memory`, or one for each consumer, and one of `beside`, if there is any.
    A barrier completes for the n-th time when its stage was filled, or left, n times.
    """

    memory: gl.shared_memory_descriptor
    beside: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor


class Call(NamedTuple):
    """Arguments of a kernel: sizes, numbers and tables.

    Kernels of dK and dV count `heads` by parts: `parts` of the query heads that share keys, with
    `group` query heads each.
    """

    rows: gl.tensor
    batch_heads: gl.tensor
    heads: gl.tensor
    group: gl.tensor
    q_len: gl.tensor
    kv_len: gl.tensor
    padded: gl.tensor
    scale: gl.tensor
    S: gl.tuple
    T: gl.tuple
    requests: Requests = None
    parts: gl.tensor = None


class Options(NamedTuple):
    """The constants of warp-specialised kernels; each kernel has some of them."""

    hooks: Hooks
    HEAD_PAD: gl.constexpr
    VALUE_PAD: gl.constexpr
    BLOCK: gl.constexpr
    CONSUMERS: gl.constexpr
    HEADS_TOGETHER: gl.constexpr = None
    PERSISTENT: gl.constexpr = False
    NORMALISED: gl.constexpr = None
    OVERLAP: gl.constexpr = None
    AHEAD: gl.constexpr = None
    TURNS: gl.constexpr = None
    OUTPUT_OVER_QUERIES: gl.constexpr = None
    APART: gl.constexpr = None
    HEAD_DIM: gl.constexpr = None
    VALUE_DIM: gl.constexpr = None
    ANEW: gl.constexpr = None
    ONE_PASS: gl.constexpr = False
    ONE_RING: gl.constexpr = False
    LOOKED_UP: gl.constexpr = False
    PAGE: gl.constexpr = 0
    PIECE: gl.constexpr = None
    FEW: gl.constexpr = 0
    HELD: gl.constexpr = 0


@gluon.constexpr_function
def _sides(columns):
    """Widths of the tensors that hold a block of this many columns: powers of two."""
    return [1 << bit for bit in range(8, 4, -1) if columns >> bit & 1]


@gluon.constexpr_function
def _side(columns, place):
    return _sides(columns)[place]


@gluon.constexpr_function
def sides_of(columns):
    """How many tensors hold a block of this many columns."""
    return len(_sides(columns))


@gluon.jit
def _side_of_blocks(desc, TILES: gl.constexpr, COLUMNS: gl.constexpr, BLOCK: gl.constexpr):
    SHAPE: gl.constexpr = [TILES, 1, 1, desc.block_shape[2] if BLOCK is None else BLOCK, COLUMNS]
    return gl.allocate_shared_memory(desc.dtype, SHAPE, desc.layout)


@gluon.jit
def memory_of(desc, TILES: gl.constexpr, COLUMNS: gl.constexpr, BLOCK: gl.constexpr = None):
    """Shared memory for this many blocks of a tensor; 160 columns are split into 128 and 32.

    A block has BLOCK rows if it is copied in pieces, else those of the descriptor.
    """
    memory = ()
    for place in gl.static_range(sides_of(COLUMNS)):
        memory = memory + (_side_of_blocks(desc, TILES, _side(COLUMNS, place), BLOCK),)
    return memory


@gluon.constexpr_function
def bytes_of(memory):
    """Bytes of a block of shared memory."""
    bits = [side.dtype.primitive_bitwidth * side.shape[3] * side.shape[4] for side in memory]
    return sum(bits) // 8


@gluon.jit
def _load_side(desc, batch, head, row, column, ready, side):
    WIDTH: gl.constexpr = desc.block_shape[3]
    if WIDTH == side.shape[3]:
        copy_to_shared(desc, [batch, head, row, column], ready, side)
    else:
        PIECES: gl.constexpr = side.shape[3] // WIDTH
        for piece in gl.static_range(PIECES):
            part = side.slice(piece * WIDTH, WIDTH, dim=3)
            copy_to_shared(desc, [batch, head, row, column + piece * WIDTH], ready, part)


@gluon.jit
def load_block(desc, at, ready, memory, stage):
    """Start the copy of a tensor's block, from indices `at` on, to shared memory."""
    for place in gl.static_range(len(memory)):
        # There are two sides at most.
        column = at[3] + place * memory[0].shape[4]
        _load_side(desc, at[0], at[1], at[2], column, ready, memory[place].index(stage))


@gluon.jit
def _store_side(desc, batch, head, row, column, side):
    WIDTH: gl.constexpr = desc.block_shape[3]
    if WIDTH == side.shape[3]:
        copy_to_global(desc, [batch, head, row, column], side)
    else:
        PIECES: gl.constexpr = side.shape[3] // WIDTH
        for piece in gl.static_range(PIECES):
            part = side.slice(piece * WIDTH, WIDTH, dim=3)
            copy_to_global(desc, [batch, head, row, column + piece * WIDTH], part)


@gluon.jit
def store_block(desc, at, memory, stage):
    """Start the copy of shared memory to a tensor's block, from indices `at` on."""
    for place in gl.static_range(len(memory)):
        column = at[3] + place * memory[0].shape[4]
        _store_side(desc, at[0], at[1], at[2], column, memory[place].index(stage))


@gluon.jit
def barriers(STAGES: gl.constexpr, COUNT: gl.constexpr):
    """A barrier for each stage, which this many arrivals complete.

    Make no barrier that no warp uses: Triton gives its memory to reductions without invalidating
    it (`mbarrier.inval`), and a reduction may then read other numbers than were written. With
    Triton 3.9 on an H100 one call in ten hung in this way.
    """
    found = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(found.index(stage), count=COUNT)
    return found


@gluon.jit
def barriers_of(STAGES: gl.constexpr, CONSUMERS: gl.constexpr, PRODUCERS: gl.constexpr = 1):
    """The barriers of a ring: of stages that producers filled, and of those that consumers left."""
    return barriers(STAGES, PRODUCERS), barriers(STAGES, CONSUMERS)


@gluon.jit
def key_of_tile(i, options):
    """The place in their ring of the i-th tile's keys; in one ring they follow their values, whose
    stage is free first."""
    if options.ONE_RING:
        return 2 * i + 1
    else:
        return i


@gluon.jit
def value_of_tile(i, options):
    """The place in their ring of the i-th tile's values."""
    if options.ONE_RING:
        return 2 * i
    else:
        return i


@gluon.jit
def stage_of(ring, i):
    """Stage of the i-th tile, and the phase in which its barriers complete."""
    STAGES: gl.constexpr = ring.ready.shape[0]
    return i % STAGES, (i // STAGES) & 1


@gluon.jit
def begin_filling(ring, i, NBYTES: gl.constexpr):
    """The i-th stage, once it is free, and its barrier, which this many bytes complete."""
    stage, phase = stage_of(ring, i)
    ready = ring.ready.index(stage)
    mbarrier.wait(ring.free.index(stage), phase ^ 1)
    mbarrier.expect(ready, NBYTES)
    return stage, ready


@gluon.jit
def fill(ring, i, desc, at):
    """Start the copy of a tensor's block to the i-th stage, once that is free."""
    stage, ready = begin_filling(ring, i, bytes_of(ring.memory))
    load_block(desc, at, ready, ring.memory, stage)


@gluon.jit
def fill_in_pieces(ring, i, desc, pages, j, head, options):
    """Start the copy of the j-th tile of keys from its pages to the i-th stage, once it is free."""
    stage, ready = begin_filling(ring, i, bytes_of(ring.memory))
    load_pieces(desc, pages, j, head, ready, ring.memory, stage, options.PAGE)


@gluon.jit
def pages_of_run(run, span, call, options):
    """The pages of a run's first tile, if keys lie in pages."""
    found = ()
    if options.PAGE > 0:
        found = pages_of_tile(
            span.batch, run.tile, call.requests, options.PAGE, options.PIECE, options.BLOCK
        )
    return found


@gluon.jit
def wait_until_filled(ring, i):
    """The i-th stage, once it is filled."""
    stage, phase = stage_of(ring, i)
    mbarrier.wait(ring.ready.index(stage), phase)
    return stage


@gluon.jit
def block_at(memory, stage):
    """A block of shared memory, rows by columns, in as many tensors as `memory_of` makes."""
    block = ()
    for place in gl.static_range(len(memory)):
        side = memory[place]
        block = block + (side.index(stage).reshape([side.shape[3], side.shape[4]]),)
    return block


@gluon.jit
def release(free):
    """Give memory back once every warp of the consumer has read it."""
    barrier_to_arrive()
    mbarrier.arrive(free, count=1)


@builtin
def specialise(
    consume, produce, consumers, registers, program, options, _semantic=None, _generator=None
):
    """Run `consume(C, program, options)` on four warps for each C < consumers, `produce(program,
    options)` on one, with the given registers a thread of later consumers and of the producer."""
    count = consumers.value
    partitions = [(consume, (gl.constexpr(c), program, options)) for c in range(count)]
    partitions.append((produce, (program, options)))
    of_consumers, of_producer = registers
    gl.warp_specialize(
        partitions,
        [4] * (count - 1) + [1],
        [of_consumers] * (count - 1) + [of_producer],
        _semantic=_semantic,
        _generator=_generator,
    )


@gluon.jit
def queries_of_row(w, call, options):
    """The w-th row of tiles, CONSUMERS x 64 queries of a head, and where they lie."""
    row, batch_head = tile_of_program(w, call.rows, call.batch_heads, options.HEADS_TOGETHER)
    QUERIES: gl.constexpr = options.CONSUMERS * ROWS
    batch, head = batch_head // call.heads, batch_head % call.heads
    kv_len = call.kv_len
    lying = Lying(batch, 0, call.q_len)
    if options.PAGE > 0:
        batch, row, kv_len, lying = request_of_row(
            row, batch, call.q_len, kv_len, call.requests, QUERIES, options.FEW
        )
    q0 = row * QUERIES
    q1 = gl.minimum(q0 + QUERIES, lying.count) - 1
    return Span(q0, q1, batch, head, kv_len, call.S, call.T), lying


@gluon.jit
def _load_queries(some, span, lying, done, program, options):
    """Load the queries of a row, after `done` other rows, and their gradients if there are any.

    Queries alone are not loaded unless there are `some` tiles of keys; their stage is then filled
    with nothing.
    """
    CONSUMERS: gl.constexpr = options.CONSUMERS
    held = program.held
    if some | (program.g_desc is not None):
        HELD_BYTES: gl.constexpr = CONSUMERS * (
            bytes_of(held.memory) + (0 if held.beside is None else bytes_of(held.beside))
        )
        place, ready = begin_filling(held, done, HELD_BYTES)
        for c in gl.static_range(CONSUMERS):
            first = [lying.entry, span.head, lying.start + span.first + c * ROWS, 0]
            at = place * CONSUMERS + c
            load_block(program.q_desc, first, ready, held.memory, at)
            if program.g_desc is not None:
                load_block(program.g_desc, first, ready, held.beside, at)
    else:
        begin_filling(held, done, 0)


@gluon.jit
def _produce_row(w, i, done, program, options):
    """Load the queries of the w-th row, after `done` other rows, and their gradients if there are
    any; then its tiles of keys and values. Returns the number of tiles so far."""
    NEXT_RUN: gl.constexpr = options.hooks.NEXT_RUN
    call = program.call
    span, lying = queries_of_row(w, call, options)
    kv_head = span.head // call.group
    run = first_tile(span, NEXT_RUN, options.BLOCK)
    _load_queries(run.tile < NO_TILE, span, lying, done, program, options)
    following = pages_of_run(run, span, call, options)
    while run.tile < NO_TILE:
        if options.PAGE > 0:
            pages, j = following, run.tile
            fill_in_pieces(program.keys, i, program.k_desc, pages, j, kv_head, options)
            run = next_tile(run, span, NEXT_RUN, options.BLOCK)
            following = pages_of_run(run, span, call, options)
            fill_in_pieces(program.vals, i, program.v_desc, pages, j, kv_head, options)
        else:
            first = [span.batch, kv_head, run.tile * options.BLOCK, 0]
            of_values = first
            if program.v_desc.dtype == gl.float8e4nv:
                of_values = [span.batch, kv_head, 0, run.tile * options.BLOCK]
            if options.ONE_RING:
                fill(program.vals, value_of_tile(i, options), program.v_desc, of_values)
                fill(program.keys, key_of_tile(i, options), program.k_desc, first)
            else:
                fill(program.keys, key_of_tile(i, options), program.k_desc, first)
                fill(program.vals, value_of_tile(i, options), program.v_desc, of_values)
            run = next_tile(run, span, NEXT_RUN, options.BLOCK)
        i += 1
    return i


@gluon.jit
def produce_keys(program, options):
    """The producer of kernels that hold queries, and their gradients if there are any: loads those
    of a row, then every tile of keys and values of its runs, as memory becomes free."""
    w = gl.program_id(0)
    i = gl.to_tensor(0)
    done = gl.to_tensor(0)
    if not options.PERSISTENT:
        _produce_row(w, i, done, program, options)
    else:
        total = program.call.rows * program.call.batch_heads
        while w < total:
            i = _produce_row(w, i, done, program, options)
            w = draw_row(done, total, program.drawn)
            done += 1


@gluon.jit
def each_time(number, i):
    """A number that the compiler takes for a new one at each step i.

    Values derived from it, such as descriptors of held tiles, are then computed where they are
    needed, not once before the loop and spilled.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r,r", [gl.to_tensor(number), i], dtype=gl.int32, is_pure=True, pack=1
    )
