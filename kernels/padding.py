"""Where the real tokens of padded rows lie: one kernel instead of eleven operations of torch."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["batch", "length", "stride"])
def real_bounds(kept_ptr, bounds_ptr, batch, length, stride, BLOCK: tl.constexpr):
    """bounds, int32 `[2, batch]`: the first kept place of each row, and the place past the last.

    The second is the first again if dropped places lie between, and both are 0 if none is kept.
    kept: one byte each, `[batch, length]`, contiguous but for the `stride` of rows. A program
    computes a row.
    """
    row = tl.program_id(0)
    first, past, count = length, 0, 0
    for at in range(0, length, BLOCK):
        place = at + tl.arange(0, BLOCK)
        entry = tl.load(kept_ptr + row.to(tl.int64) * stride + place, mask=place < length, other=0)
        kept = entry != 0
        first = tl.minimum(first, tl.min(tl.where(kept, place, length), 0))
        past = tl.maximum(past, tl.max(tl.where(kept, place + 1, 0), 0))
        count += tl.sum(kept.to(tl.int32), 0)
    first = tl.minimum(first, past)
    tl.store(bounds_ptr + row, first)
    tl.store(bounds_ptr + batch + row, tl.where(count == past - first, past, first))
