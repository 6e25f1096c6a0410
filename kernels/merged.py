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
    lse_of_batch,
    lse_of_head,
    DIM: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """out `[batch, heads, length, DIM]` and lse of as many parts as there are pointers.

    of_batch, of_head and of_row: strides of each part, and then of out; likewise of the lses, whose
    rows are contiguous. out and lse may be parts. A part without keys, whose lse is -inf, is not
    read.
    """
    row = tl.program_id(0) * (ROWS_BY_COLUMNS // COLUMNS)
    row += tl.arange(0, ROWS_BY_COLUMNS // COLUMNS)
    inside = row < rows
    of_all = row // length
    batch, head = (of_all // heads).to(tl.int64), (of_all % heads).to(tl.int64)
    token = (row % length).to(tl.int64)
    column = tl.arange(0, COLUMNS)[None, :]
    highest = tl.full([ROWS_BY_COLUMNS // COLUMNS], float("-inf"), tl.float32)
    for part in tl.static_range(len(lses)):
        at = batch * lse_of_batch[part] + head * lse_of_head[part] + token
        of_part = tl.load(lses[part] + at, mask=inside, other=float("-inf"))
        highest = tl.maximum(highest, of_part)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = tl.zeros([ROWS_BY_COLUMNS // COLUMNS], tl.float32)
    out = tl.zeros([ROWS_BY_COLUMNS // COLUMNS, COLUMNS], tl.float32)
    for part in tl.static_range(len(outs)):
        at = batch * lse_of_batch[part] + head * lse_of_head[part] + token
        of_part = tl.load(lses[part] + at, mask=inside, other=float("-inf"))
        some = of_part != float("-inf")
        share = tl.where(some, tl.exp(of_part - highest), 0.0)
        total += share
        read = (inside & some)[:, None] & (column < DIM)
        place = batch * of_batch[part] + head * of_head[part] + token * of_row[part]
        held = tl.load(outs[part] + place[:, None] + column, mask=read, other=0.0)
        out += share[:, None] * held.to(tl.float32)
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    out = (out / total[:, None]).to(out_ptr.dtype.element_ty)
    place = batch * of_batch[len(outs)] + head * of_head[len(outs)] + token * of_row[len(outs)]
    tl.store(out_ptr + place[:, None] + column, out, mask=inside[:, None] & (column < DIM))
    lse = tl.where(empty, float("-inf"), highest + tl.log(total))
    at = batch * lse_of_batch[len(lses)] + head * lse_of_head[len(lses)] + token
    tl.store(lse_ptr + at, lse, mask=inside)
