"""Keys that the mask drops, whose pages may hold NaN, and outputs beside other requests' rows.

A weight of zero times NaN is NaN. Full tiles drop no key. In a partial tile, consumers look for
values that are not finite; if there are any, they zero the values of keys that no query of the row
of tiles keeps. All consumers find the same keys, so their order does not matter. A value that some
query keeps is left as it is.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from .elements import Place, kept
from .gluon_names import barrier
from .hopper_common import ROWS, block_at, wait_until_filled

_KEYS = gl.constexpr(32)  # keys whose values are checked at once
_QUERIES = gl.constexpr(16)

_across = gl.constexpr(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))


@gluon.constexpr_function
def by_line(columns):
    """A layout of rows in which a thread has eight neighbouring elements."""
    return gl.BlockedLayout([1, 8], [256 // columns, columns // 8], [4, 1], [1, 0])


@gluon.jit
def clear_dropped(i, run, row, program, options):
    """In the i-th tile of values, the next to be multiplied, zero those that are not finite and
    that no query of the row of tiles keeps."""
    if run.partial:
        stage = wait_until_filled(program.vals, i)
        for place in gl.static_range(len(program.vals.memory)):
            side = block_at(program.vals.memory, stage)[place]
            for part in gl.static_range(options.BLOCK // _KEYS):
                first = run.tile * options.BLOCK + part * _KEYS
                _clear(side.slice(part * _KEYS, _KEYS, dim=0), first, row, program.call, options)
        # Products read the zeros written here, and those written by another consumer.
        fence_async_shared()
        barrier()


@gluon.jit
def _clear(side, first, row, call, options):
    lines: gl.constexpr = by_line(side.shape[1])
    EXPONENT: gl.constexpr = 0x7C00 if side.dtype == gl.float16 else 0x7F80
    found = side.load(lines)
    special = found.to(gl.int16, bitcast=True).to(gl.int32) & EXPONENT == EXPONENT
    if gl.max(gl.max(special.to(gl.int32), 1), 0) > 0:
        some = _kept_by_some(first, row, call, options)
        some = gl.convert_layout(some, gl.SliceLayout(1, lines))
        side.store(gl.where(some[:, None] > 0, found, gl.zeros_like(found)))


@gluon.jit
def _kept_by_some(first, row, call, options):
    """1 for each of _KEYS keys from `first` on that a query of the row of tiles keeps, else 0."""
    kv_idx = (first + gl.arange(0, _KEYS, gl.SliceLayout(0, _across)))[None, :]
    nothing = gl.zeros([_QUERIES, _KEYS], gl.float32, _across)
    some = gl.zeros([_QUERIES, _KEYS], gl.int32, _across)
    for at in range(0, options.CONSUMERS * ROWS, _QUERIES):
        q_idx = (row.first + at + gl.arange(0, _QUERIES, gl.SliceLayout(1, _across)))[:, None]
        T, _ = options.hooks.HOLD(
            row.batch, row.head, q_idx, row.kv_len, call.scale, call.S, call.T
        )
        place = Place(row.batch, row.head, q_idx, kv_idx, row.kv_len, call.S, T)
        keeps = kept(nothing, place, options.hooks) & (q_idx < row.count)
        some = some | keeps.to(gl.int32)
    return gl.max(some, 0)


@gluon.jit
def store_rows(program, count, head, first, C: gl.constexpr, options):
    """Store the first `count` rows of the outputs of consumer C, from row `first` of a head on."""
    outputs = block_at(program.outputs, C)
    for place in gl.static_range(len(outputs)):
        _store_side(
            outputs[place], place * outputs[0].shape[1], program, count, head, first, options
        )


@gluon.jit
def _store_side(side, column, program, count, head, first, options):
    lines: gl.constexpr = by_line(side.shape[1])
    row = gl.arange(0, ROWS, gl.SliceLayout(1, lines))
    columns = column + gl.arange(0, side.shape[1], gl.SliceLayout(0, lines))
    of_head = head.to(gl.int64) * program.head_step
    at = (of_head + (first + row).to(gl.int64) * program.row_step) * options.VALUE_DIM
    exists = (row < count)[:, None] & (columns < options.VALUE_DIM)[None, :]
    gl.store(program.packed_ptr + at[:, None] + columns[None, :], side.load(lines), mask=exists)
