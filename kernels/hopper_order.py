"""The order in which `hopper_gradients` starts programs, and in which each visits the queries.

Programs add to a tile of dQ in the order in which they were started. Mostly programs of the last
keys start first, and visit queries from the first on: where masks follow the diagonal, a program
reaches a tile some steps after the program before it, and waits for nothing. Programs of the first
keys, then the longest, would end long after all others. So the last heads start with their first
keys, side by side, and visit queries from the last on, which all of them reach.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .forward import tile_of_program
from .hopper_common import ROWS

CONSUMERS = gl.constexpr(2)


@gluon.jit
def program_in_order(program):
    """Batch and first query head, first key and last of this program, and 1 if it goes from the
    last queries.

    A program has `members` query heads of one key-value head. `together` such groups of heads start
    in turn, and the last `turned` groups begin with the first keys.
    """
    call, rows, order = program.call, program.call.rows, program.one_pass
    w = gl.program_id(0)
    parts = call.group // order.members
    plain = call.batch_heads * parts - order.turned
    from_last = (w >= rows * plain).to(gl.int32)
    if from_last == 1:
        w -= rows * plain
        row, part = w // order.turned, plain + w % order.turned
    else:
        row, part = tile_of_program(w, rows, plain, order.together)
    k0 = row * (CONSUMERS * ROWS)
    k1 = gl.minimum(k0 + CONSUMERS * ROWS, call.kv_len) - 1
    of_batch = call.heads * parts
    return part // of_batch, part % of_batch * order.members, k0, k1, from_last


@gluon.jit
def tile_in_order(j, from_last, q_len, BLOCK: gl.constexpr):
    """The j-th tile of queries; with from_last 1 the j-th from the last."""
    return j + from_last * ((q_len - 1) // BLOCK - 2 * j)
