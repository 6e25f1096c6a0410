"""Segments packed depth first, by one kernel: until where each position is kept.

The host launches many small operations of torch for the same table, and each takes it longer than
this kernel takes the GPU.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count", "total"], debug=True)
def segment_ends(cu_seqlens_ptr, parents_ptr, end_ptr, count, total, BLOCK: tl.constexpr):
    """end, int32 `[total]`, of the positions of one segment: where the last that continues it ends.

    cu_seqlens `[count + 1]`, parents `[count]`, integers. One program more than segments gives 0 to
    the positions past the last. Positions that no entry names are not written.

    The assertion fails where a segment continues neither the one before it nor one that this
    continues.
    """
    segment = tl.program_id(0)
    value = tl.zeros((), tl.int32)
    first = tl.load(cu_seqlens_ptr + segment).to(tl.int32)
    last = total
    if segment < count:
        last = tl.load(cu_seqlens_ptr + segment + 1).to(tl.int32)
        parent = tl.load(parents_ptr + segment).to(tl.int32)
        # What it continues is open here: nothing between continues what stands before that.
        right = parent < segment
        at = tl.maximum(parent, -1) + 1
        while (at <= segment) & (parent >= 0):
            other = at + tl.arange(0, BLOCK)
            above = tl.load(parents_ptr + other, mask=other <= segment, other=parent)
            right = right & (tl.min(above, 0) >= parent)
            at += BLOCK
        tl.device_assert(right, "shared_prefix.from_cu_seqlens: not packed depth first")
        past = count
        at = segment + 1
        while at < past:
            other = at + tl.arange(0, BLOCK)
            above = tl.load(parents_ptr + other, mask=other < count, other=segment)
            past = tl.minimum(past, tl.min(tl.where(above < segment, other, count), 0))
            at += BLOCK
        value = tl.load(cu_seqlens_ptr + past).to(tl.int32)
    for position in range(tl.maximum(first, 0), tl.minimum(last, total), BLOCK):
        place = position + tl.arange(0, BLOCK)
        tl.store(end_ptr + place, value, mask=place < tl.minimum(last, total))
