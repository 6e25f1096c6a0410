"""In which order `hopper_gradients` starts programs, and each of them goes through the queries.

Programs add to a tile of dQ in the order in which they were started. Mostly the last keys are
started first, and go from the first queries on: where masks follow the diagonal, a program reaches
a tile some steps after the one before it, and waits for nothing. The first keys, the longest then,
would end long after all others: the last heads start with them, side by side, and go from the last
queries on, which all of them reach.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .forward import tile_of_program
from .hopper_common import ROWS

CONSUMERS = gl.constexpr(2)


@gluon.jit
def program_in_order(shape, order):
    """Batch and head of this program, its first key and its last, and 1 if it goes from the last.

    order: how many heads start in turn, and how many at the end begin with the first keys.
    """
    rows, batch_heads, kv_heads, _group, kv_len, _q_len, _padded = shape
    together, turned = order
    w = gl.program_id(0)
    plain = batch_heads - turned
    from_last = (w >= rows * plain).to(gl.int32)
    if from_last == 1:
        w -= rows * plain
        row, batch_head = w // turned, plain + w % turned
    else:
        row, batch_head = tile_of_program(w, rows, plain, together)
    k0 = row * (CONSUMERS * ROWS)
    k1 = gl.minimum(k0 + CONSUMERS * ROWS, kv_len) - 1
    return batch_head // kv_heads, batch_head % kv_heads, k0, k1, from_last


@gluon.jit
def tile_in_order(j, from_last, q_len, BLOCK: gl.constexpr):
    """The j-th tile of queries; with from_last 1 the j-th from the last."""
    return j + from_last * ((q_len - 1) // BLOCK - 2 * j)
