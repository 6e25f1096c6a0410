"""A tile of the forward pass on Hopper: its weights, made beside the product of earlier ones."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma_wait,
)

from .elements import LOG2E, Place, biased, masked, weight_of
from .gluon_names import barrier, barrier_to_arrive
from .hopper_common import (
    ROWS,
    block_at,
    columns_from,
    each_time,
    matrix_of,
    release,
    stage_of,
    wait_until_filled,
)
from .hopper_dropped import clear_dropped
from .hopper_float8 import as_operand, packed, raised, value_of
from .hopper_parts import add_rows, dots, scaled, sums_of, wait_for


@gluon.jit
def _no_sooner(length, sums):
    """Keeps later instructions behind the sums of weights: a branch, for lengths below zero.

    NVIDIA's assembler moves a wait for products ahead of all arithmetic that would fill the time,
    and Triton 3.9 the arithmetic behind the wait, unless the instruction before it reads the sums.
    """
    gl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.lt.s32 p, $4, 0;
        again:
        @!p bra done;
        nanosleep.u32 100;
        bra again;
        done:
        mov.s32 $0, $4;
        mov.s32 $1, $4;
        mov.s32 $2, $4;
        mov.s32 $3, $4;
        }""",
        "=r,=r,=r,=r,r,r,r,r,f,f,f,f",
        [gl.full(sums.shape, length, gl.int32, sums.type.layout), sums],
        dtype=gl.int32,
        is_pure=False,
        pack=4,
    )


@gluon.constexpr_function
def _by_line(columns):
    """A layout in which a thread has eight columns, a warp whole rows: those of its products."""
    return gl.BlockedLayout([columns // 16, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def entries_of(j, row, options):
    """Entries of the j-th tile whose loads begin here."""
    early = ()
    if options.AHEAD is not None:
        BLOCK_N: gl.constexpr = options.BLOCK
        by_line: gl.constexpr = _by_line(BLOCK_N)
        # Addresses of rows are found anew for each tile: kept, they would take too many registers.
        q_idx = each_time(row.q0, j) + gl.arange(0, ROWS, gl.SliceLayout(1, by_line))[:, None]
        kv_idx = j * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, by_line))[None, :]
        early = options.AHEAD(row.batch, row.head, q_idx, kv_idx, row.kv_len, row.S, row.T)
    return early


@gluon.jit
def with_early(S, early, BLOCK_N: gl.constexpr):
    """The numbers, followed by the entries that were loaded, in the layout of scores."""
    for i in gl.static_range(len(early)):
        S = S + (gl.convert_layout(early[i], matrix_of(BLOCK_N)),)
    return S


@gluon.jit
def weigh(score, m, early, run, row, options, DTYPE: gl.constexpr):
    """Weights of a tile of scores, the new running maximum, and the factor of older sums.

    WEIGHTED, there is no maximum, and the compiler drops products with a factor of 1.
    """
    S = with_early(row.S, early, options.BLOCK)
    kv_idx = columns_from(run.tile * options.BLOCK, options.BLOCK, options.LOOKED_UP)
    at = Place(row.batch, row.head, row.q_idx, kv_idx, row.kv_len, S, row.T)
    if options.hooks.WEIGHTED:
        weight = weight_of(score, at, row.unit, options.hooks, run.partial)
        return weight, m, gl.where(m == m, 1.0, 1.0)
    factor = row.unit * LOG2E
    score = masked(biased(score, at, options.hooks), at, options.hooks, run.partial)
    m_new = gl.maximum(m, gl.max(score, 1))
    # A row without a kept key so far has m = -inf, and -inf - -inf is not a number.
    base = gl.where(m_new == float("-inf"), 0.0, m_new) * factor
    weight = gl.exp2(score * factor - (base - raised(DTYPE))[:, None])
    return weight, m_new, gl.exp2(m * factor - base)


@gluon.jit
def added(l, weight, correction):
    """Sums of weights, eight columns to a row, so that no thread needs another's."""
    eight: gl.constexpr = l.type.layout
    folded = gl.sum(weight.reshape([ROWS, weight.shape[1] // 8, 8]), 1)
    correction = gl.convert_layout(correction, gl.SliceLayout(1, eight), assert_trivial=True)
    return l * correction[:, None] + gl.convert_layout(folded, eight, assert_trivial=True)


@gluon.jit
def tile_after(
    C: gl.constexpr, i, before, past, begun, turn, p, acc, m, l, run, row, program, options
):
    """Weights of the i-th tile, made while those of the one before are multiplied by its values.

    `past` says that no other weights are to be multiplied by the values of `before`, `begun` that
    there were products before.
    """
    keys, vals, turns = program.keys, program.vals, program.turns
    dtype: gl.constexpr = program.k_desc.dtype
    output: gl.constexpr = acc[0].type.layout
    VALUE_DIM: gl.constexpr = options.VALUE_DIM
    BLOCK_N: gl.constexpr = options.BLOCK
    # Sums of float8 products lose all but 13 bits: a tile's are added to others in float32.
    SUMMED: gl.constexpr = dtype == gl.float8e4nv
    SUMS: gl.constexpr = options.NORMALISED or program.lse_ptr is not None
    stage, phase = stage_of(keys, i)
    old, old_phase = stage_of(vals, before)
    early = entries_of(run.tile, row, options)
    if options.TURNS:
        # Triton 3.6 puts a barrier here by itself, 3.9 does not and is up to 3 % slower without.
        barrier()
        # The first consumer finds its barrier fresh, where the phase before has passed.
        mbarrier.wait(turns.index(C), (turn & 1) ^ (1 if C == 0 else 0))
    mbarrier.wait(keys.ready.index(stage), phase)
    key = block_at(keys.memory, stage)
    score = dots(row.query, key, row.zero, options.HEAD_DIM, options.HELD)
    mbarrier.wait(vals.ready.index(old), old_phase)
    value = value_of(vals.memory, old)
    operand = as_operand(p, output, dtype)
    product = add_rows(acc, operand, value, VALUE_DIM, False if SUMMED else begun)
    if options.TURNS:
        mbarrier.arrive(turns.index((C + 1) % options.CONSUMERS), count=1)
        turn += 1
    score = warpgroup_mma_wait(sums_of(VALUE_DIM), deps=[score])
    release(keys.free.index(stage))
    score = gl.convert_layout(score, matrix_of(BLOCK_N), assert_trivial=True)
    weight, m, correction = weigh(score, m, early, run, row, options, dtype)
    if SUMS:
        l = added(l, weight, correction)
    if options.OVERLAP:
        _no_sooner(row.kv_len, l)
    product = wait_for(product)
    barrier_to_arrive()
    mbarrier.arrive(vals.free.index(old), count=1, pred=past)
    if SUMMED:
        product = (acc[0] + product[0],)
    acc = scaled(product, correction)
    if options.PAGE > 0:
        clear_dropped(i, run, row, program, options)
    return packed(weight, output, dtype), acc, m, l, turn


@gluon.jit
def multiplied(i, p, acc, begun, vals, options):
    """The output so far and the i-th tile's part of it, the last of a row."""
    stage = wait_until_filled(vals, i)
    value = value_of(vals.memory, stage)
    dtype: gl.constexpr = vals.memory[0].dtype
    output: gl.constexpr = acc[0].type.layout
    operand = as_operand(p, output, dtype)
    SUMMED: gl.constexpr = dtype == gl.float8e4nv
    product = add_rows(acc, operand, value, options.VALUE_DIM, False if SUMMED else begun)
    product = wait_for(product)
    release(vals.free.index(stage))
    if SUMMED:
        product = (acc[0] + product[0],)
    return product
