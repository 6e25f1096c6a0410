"""Segments packed depth first: where the last query of each key ends, and depths; a kernel each.

torch needs many small operations for the same table, and launching each takes the host longer than
such a kernel takes the GPU.
"""

import triton
import triton.language as tl


@triton.jit
def _is_depth_first(parents_ptr, segment, BLOCK: tl.constexpr):
    """Whether a segment may continue its parent: no segment between continues one before the
    parent."""
    parent = tl.load(parents_ptr + segment).to(tl.int32)
    right = parent < segment
    at = tl.maximum(parent, -1) + 1
    while (at <= segment) & (parent >= 0):
        other = at + tl.arange(0, BLOCK)
        above = tl.load(parents_ptr + other, mask=other <= segment, other=parent)
        right = right & (tl.min(above, 0) >= parent)
        at += BLOCK
    return right


@triton.jit(do_not_specialize=["count", "total"], debug=True)
def segment_ends(cu_seqlens_ptr, parents_ptr, end_ptr, count, total, BLOCK: tl.constexpr):
    """end, int32 `[total]`, of the positions of one segment: where the last that continues it ends.

    cu_seqlens `[count + 1]`, parents `[count]`, integers. One program more than there are segments
    stores 0 for positions past the last segment. Positions outside of all of these are not written.

    The assertion fails where a segment continues neither the one before it nor one that this
    continues.
    """
    segment = tl.program_id(0)
    value = tl.zeros((), tl.int32)
    first = tl.load(cu_seqlens_ptr + segment).to(tl.int32)
    last = total
    if segment < count:
        last = tl.load(cu_seqlens_ptr + segment + 1).to(tl.int32)
        right = _is_depth_first(parents_ptr, segment, BLOCK)
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


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b)


@triton.jit(do_not_specialize=["count", "total"], debug=True)
def segment_depths(cu_seqlens_ptr, parents_ptr, depth_ptr, count, total, BLOCK: tl.constexpr):
    """depth, int64 `[total]`: of each position the tokens before it in its segment, and in those
    that this continues. Arguments, programs and assertion as of `segment_ends`.

    Segment j is continued by a later one if none of those up to it continues one before j.
    """
    segment = tl.program_id(0)
    first = tl.load(cu_seqlens_ptr + segment).to(tl.int32)
    last = total
    above = tl.zeros((), tl.int64)
    if segment < count:
        last = tl.load(cu_seqlens_ptr + segment + 1).to(tl.int32)
        right = _is_depth_first(parents_ptr, segment, BLOCK)
        tl.device_assert(right, "shared_prefix.depths: not packed depth first")
        least = count
        at = segment
        while (at > 0) & (least >= 0):
            other = at - BLOCK + tl.arange(0, BLOCK)
            inside = other >= 0
            after = tl.load(parents_ptr + other + 1, mask=inside, other=count).to(tl.int32)
            reached = tl.minimum(tl.associative_scan(after, 0, _smaller, reverse=True), least)
            continued = inside & (reached >= other)
            begin = tl.load(cu_seqlens_ptr + other, mask=continued, other=0)
            end = tl.load(cu_seqlens_ptr + other + 1, mask=continued, other=0)
            above += tl.sum((end - begin).to(tl.int64), 0)
            least = tl.minimum(least, tl.min(after, 0))
            at -= BLOCK
    for position in range(tl.maximum(first, 0), tl.minimum(last, total), BLOCK):
        place = position + tl.arange(0, BLOCK)
        depth = tl.where(segment < count, place - first + above, 0)
        tl.store(depth_ptr + place, depth, mask=place < tl.minimum(last, total))
