"""Attention over parts of the keys, joined: each part is read once."""

import triton
import triton.language as tl

ROWS_BY_COLUMNS = tl.constexpr(4096)
"""Numbers of a part that a program holds at a time."""


@triton.jit(do_not_specialize=["rows", "heads", "length"])
def merged(
    outs,
    lses,
    out_ptr,
    lse_ptr,
    rows,
    heads,
    length,
    of_batch,
    of_head,
    of_row,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """out `[batch, heads, length, DIM]` and lse of as many parts as there are pointers.

    The lses are contiguous. Outputs of parts lie as out does: of_batch, of_head and of_row elements
    from one to the next. A part of no keys, whose lse is -inf, is not read.
    """
    row = tl.program_id(0) * (ROWS_BY_COLUMNS // COLUMNS)
    row += tl.arange(0, ROWS_BY_COLUMNS // COLUMNS)
    inside = row < rows
    of_all = row // length
    place = (of_all // heads).to(tl.int64) * of_batch + (of_all % heads).to(tl.int64) * of_head
    place += (row % length).to(tl.int64) * of_row
    column = tl.arange(0, COLUMNS)[None, :]
    highest = tl.full([ROWS_BY_COLUMNS // COLUMNS], float("-inf"), tl.float32)
    for part in tl.static_range(len(lses)):
        of_part = tl.load(lses[part] + row, mask=inside, other=float("-inf"))
        highest = tl.maximum(highest, of_part)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.zeros([ROWS_BY_COLUMNS // COLUMNS], tl.float32)
    out = tl.zeros([ROWS_BY_COLUMNS // COLUMNS, COLUMNS], tl.float32)
    for part in tl.static_range(len(outs)):
        of_part = tl.load(lses[part] + row, mask=inside, other=float("-inf"))
        some = of_part != float("-inf")
        share = tl.where(some, tl.exp(of_part - highest), 0.0)
        total += share
        read = (inside & some)[:, None] & (column < DIM)
        held = tl.load(outs[part] + place[:, None] + column, mask=read, other=0.0)
        out += share[:, None] * held.to(tl.float32)
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    out = (out / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + place[:, None] + column, out, mask=inside[:, None] & (column < DIM))
    lse = tl.where(empty, float("-inf"), highest + tl.log(total))
    tl.store(lse_ptr + row, lse, mask=inside)
