"""A bit for each pair of a query and a key: whether the mask keeps it.

Looking a bit up takes a few instructions, whatever the mask costs to compute. All heads that share
a mask share its bits, and so do all layers while its tensors live unchanged. A row of bits belongs
to a query, or, for kernels that loop over queries, to a key.

Bits of long calls are kept in tiles of LINES rows and COLUMNS columns: for each tile the table
begins with its place, and all tiles without a kept pair, or without a dropped one, share one place.
"""

import triton
import triton.language as tl

from .elements import SCALARS

WORD = tl.constexpr(32)
LINES = tl.constexpr(64)
COLUMNS = tl.constexpr(256)


@triton.jit(do_not_specialize=["begin", "rows", "columns", "words", "kv_len", "heads", *SCALARS])
def kept_bits(
    out_ptr,
    T,
    begin,
    rows,
    columns,
    words,
    kv_len,
    heads,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    HOLD: tl.constexpr,
    MASKED: tl.constexpr,
    NEXT_RUN: tl.constexpr,
    OF_KEYS: tl.constexpr,
    SIDE: tl.constexpr,
):  # fmt: skip
    """The bits of SIDE rows and columns, int32 `[batch, heads, rows, words]`, of rows from `begin`.

    Pairs of tiles that NEXT_RUN calls partial are computed.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    across = words * WORD // SIDE
    column = tl.program_id(0) % across
    first = tl.program_id(0) // across * SIDE
    member = tl.program_id(1)
    batch, head = member // heads, member % heads
    line = first + tl.arange(0, SIDE)
    row = begin + line
    last = begin + tl.minimum(first + SIDE, rows) - 1
    tile, _end, partial = NEXT_RUN(column, begin + first, last, batch, head, columns, S, T, SIDE)
    found = tl.zeros([SIDE, SIDE // WORD], tl.int32)
    if tile == column:
        found = ~found
        if partial:
            index = column * SIDE + tl.arange(0, SIDE)
            nothing = tl.zeros([SIDE, SIDE], tl.float32)
            # A hook may return its scale, and Triton returns no Python float from a function.
            scale = tl.full((), 1.0, tl.float32)
            held, _unit = HOLD(batch, head, row[:, None], kv_len, scale, S, T)
            if OF_KEYS:
                score = MASKED(nothing, batch, head, index[None, :], row[:, None], kv_len, S, held)
            else:
                score = MASKED(nothing, batch, head, row[:, None], index[None, :], kv_len, S, held)
            bit = (score == 0.0).to(tl.int32) << (tl.arange(0, SIDE) % WORD)[None, :]
            found = tl.sum(tl.reshape(bit, (SIDE, SIDE // WORD, WORD)), 2)
    at = (member * rows + line)[:, None] * words + column * (SIDE // WORD)
    at += tl.arange(0, SIDE // WORD)[None, :]
    tl.store(out_ptr + at, found, mask=(line < rows)[:, None])


@triton.jit
def _either(one, other):
    return one


@triton.jit
def bits_of(table, row, index):
    """The bits of a tile: for each element its word, and the mask of its bit in the word.

    Args:
        table: pointer to the bits.
        row: words before each row, `[n, 1]`.
        index: positions along rows, `[1, m]`, of a tile that begins at a multiple of m.
    """
    return _bits_at(table, row, index, index.shape[1])


@triton.jit
def _bits_at(table, row, index, SIZE: tl.constexpr):
    tl.static_assert(SIZE % WORD == 0 or WORD % SIZE == 0)
    if SIZE < WORD:
        first, place = index // WORD, index % WORD
    else:
        first, place = index // SIZE * (SIZE // WORD), index % SIZE
    # A thread loads once for each of its rows. Words before a tile are equal: one stands for all.
    at = table + (tl.reduce(row, 1, _either) + tl.reduce(first, 1, _either))
    word = tl.load(at)[:, None]
    for i in tl.static_range(1, SIZE // WORD):
        word = tl.where(place < i * WORD, word, tl.load(at + i)[:, None])
    # Places differ by constants within a thread, and by 2, 4 and 6 between those of a row.
    return word >> (place & 6), 1 << (place & 25)


@triton.jit
def bits_of_tiles(table, member, step, row, index):
    """Likewise, where bits are kept in tiles.

    Args:
        table: pointer to the places of tiles, and behind them the tiles.
        member: places before those of the batch entry and head.
        step: places from one row of tiles to the next.
        row: rows of the elements, `[n, 1]`.
        index: positions along rows, `[1, m]`, of a tile that begins at a multiple of m.
    """
    column = tl.reduce(index // COLUMNS, 1, _either)[:, None]
    place = tl.load(table + (member + row // LINES * step + column))
    line = place + row % LINES * (COLUMNS // WORD)
    return _bits_at(table, line, index % COLUMNS, index.shape[1])
