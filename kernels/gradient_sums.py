"""Kernels that run before and after those of gradients: the turns of the programs of
`hopper_gradients`, dQ of its sums, and dK and dV of sums of parts.

Comments state invariants in the words of `runs.py`; `stored` are the numbers in memory for tile t
of a row. For `turns`, which goes over rows, `stored` are the numbers of any row r in both halves,
and `visits_before(n)` is the number of rows before n that visit the tile.
"""

import triton
import triton.language as tl

from .backward import first_row
from .elements import SCALARS
from .runs import NO_TILE


@triton.jit(do_not_specialize=["q_len", "kv_len", "tiles", *SCALARS])
def visits(
    out_ptr,
    T,
    q_len,
    kv_len,
    tiles,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    NEXT_RUN: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store 1 where a tile of KEYS keys visits one of BLOCK queries, 0 elsewhere, `[rows, tiles]`.

    NEXT_RUN must be that of the kernel that takes the turns: one visit more is a wrong turn.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    row = tl.program_id(0)
    k0 = row * KEYS
    k1 = tl.minimum(k0 + KEYS, kv_len) - 1
    # invariant: (first >= 0) & implies(t < first, stored == 0)
    for first in range(0, tiles, 128):
        at = first + tl.arange(0, 128)
        tl.store(out_ptr + row * tiles + at, tl.zeros([128], tl.int32), mask=at < tiles)
    tl.debug_barrier()  # ones are stored by other threads; on NVIDIA it orders global memory too
    j, end, _partial = NEXT_RUN(0, 0, k0, k1, 0, 0, q_len, S, T, BLOCK)
    # Plus nothing: Triton 3.6 cannot compile a loop that is known to have no step.
    j += tl.minimum(kv_len, 0)
    # invariant: (j >= 0) & is_run(j, end) & (stored == (touched & (t < j)))
    # until: NO_TILE - j
    while j < NO_TILE:
        # invariant: stored == (touched & ((t < j) | ((t < first) & (t < end))))
        for first in range(j, end, 128):
            at = first + tl.arange(0, 128)
            tl.store(out_ptr + row * tiles + at, tl.full([128], 1, tl.int32), mask=at < end)
        j, end, _partial = NEXT_RUN(end, 0, k0, k1, 0, 0, q_len, S, T, BLOCK)


@triton.jit(do_not_specialize=["rows", "tiles"])
def turns(ptr, rows, tiles, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Replace visits by the numbers of visits in later rows, then by those in earlier rows.

    `[2, rows, tiles]`, of which the first half holds the visits.
    """
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    earlier = tl.zeros([COLUMNS], tl.int32)
    # invariant: (first >= 0) & (earlier == visits_before(first))
    # invariant: implies(r < first, stored[1] == visits_before(r))
    # invariant: stored[0] == visit(r)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        at = ptr + row[:, None] * tiles + columns[None, :]
        inside = (row < rows)[:, None] & (columns < tiles)[None, :]
        visited = tl.load(at, mask=inside, other=0)
        before = earlier[None, :] + tl.cumsum(visited, 0) - visited
        tl.store(at + rows * tiles, before, mask=inside)
        earlier += tl.sum(visited, 0)
    later = tl.zeros([COLUMNS], tl.int32)
    # invariant: (first >= 0) & (later == visits_before(rows) - visits_before(rows - first))
    # invariant: implies(r >= rows - first, stored[0] == visits_before(rows) - visits_before(r + 1))
    # invariant: implies(r < rows - first, stored[0] == visit(r))
    # invariant: stored[1] == visits_before(r)
    for first in range(0, rows, ROWS):
        row = rows - 1 - first - tl.arange(0, ROWS)
        at = ptr + row[:, None] * tiles + columns[None, :]
        inside = (row >= 0)[:, None] & (columns < tiles)[None, :]
        visited = tl.load(at, mask=inside, other=0)
        tl.store(at, later[None, :] + tl.cumsum(visited, 0) - visited, mask=inside)
        later += tl.sum(visited, 0)


@triton.jit(do_not_specialize=["q_len", "tiles", "head_step", "row_step"])
def query_gradients(
    dq_ptr,
    sum_ptr,
    counter_ptr,
    scale,
    q_len,
    tiles,
    heads,
    head_step,
    row_step,
    BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
):
    """dQ of BLOCK queries of one head: their sum times the scale, 0 where nothing was added.

    `head_step` and `row_step` as in `backward_queries`.
    """
    PARTS: tl.constexpr = BLOCK * HEAD_PAD // 4096
    j = tl.program_id(0) % tiles
    head = (tl.program_id(0) // tiles).to(tl.int64)
    m = j * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, HEAD_PAD)
    begin = first_row(head // heads, head % heads, heads, q_len, head_step)
    at = (begin + m.to(tl.int64) * row_step)[:, None] * HEAD_DIM + d[None, :]
    inside = (m < q_len)[:, None] & (d < HEAD_DIM)[None, :]
    # A program adds to both parts or to none.
    added = tl.load(counter_ptr + (head * tiles + j) * PARTS) > 0
    first = sum_ptr + (head * tiles + j) * (BLOCK * HEAD_PAD)
    total = tl.load(first + tl.arange(0, BLOCK * HEAD_PAD), mask=added, other=0.0)
    # Undo the order of `part_of`; the two parts are 64 queries each, or half of the columns each.
    apart = tl.reshape(total, (PARTS, 4, 8, 8, 4, 2, 2))
    if BLOCK == 64:
        apart = tl.permute(apart, (1, 5, 3, 0, 2, 4, 6))
    else:
        apart = tl.permute(apart, (0, 1, 5, 3, 2, 4, 6))
    total = tl.reshape(apart, (BLOCK, HEAD_PAD))
    tl.store(dq_ptr + at, (total * scale).to(dq_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _add_parts(
    out_ptr, part_ptr, at, first, inside, length, parts, SIZE: tl.constexpr, PAD: tl.constexpr
):
    d = tl.arange(0, PAD)
    kept = inside[:, None] & (d < SIZE)[None, :]
    total = tl.zeros([inside.shape[0], PAD], tl.float32)
    for part in range(parts):
        row = first + part * length
        total += tl.load(part_ptr + row[:, None] * SIZE + d[None, :], mask=kept, other=0.0)
    tl.store(
        out_ptr + at[:, None] * SIZE + d[None, :], total.to(out_ptr.dtype.element_ty), mask=kept
    )


@triton.jit(do_not_specialize=["kv_len", "rows", "parts", "head_step", "row_step"])
def sums_of_parts(
    dk_ptr,
    dv_ptr,
    key_part_ptr,
    value_part_ptr,
    kv_len,
    rows,
    kv_heads,
    parts,
    head_step,
    row_step,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    """dK and dV of ROWS keys of one head: the sums of all parts of its query heads, in order.

    key_part, value_part: float32 `[batch, kv_heads, parts, kv_len, dim]`. `head_step` and
    `row_step` as in `backward_keys`.
    """
    batch_head = tl.program_id(0) // rows
    n = tl.program_id(0) % rows * ROWS + tl.arange(0, ROWS)
    at = first_row(batch_head // kv_heads, batch_head % kv_heads, kv_heads, kv_len, head_step)
    at += n.to(tl.int64) * row_step
    first = batch_head.to(tl.int64) * parts * kv_len + n
    length = kv_len.to(tl.int64)
    inside = n < kv_len
    _add_parts(dk_ptr, key_part_ptr, at, first, inside, length, parts, HEAD_DIM, HEAD_PAD)
    _add_parts(dv_ptr, value_part_ptr, at, first, inside, length, parts, VALUE_DIM, VALUE_PAD)
