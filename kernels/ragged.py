"""Packed requests with few queries: long caches are shared by more programs than short ones.

Every row of tiles of `decode` has equally many programs, so one long cache makes all wait. Here
each request has its own number of parts: `listed` counts the tiles that its queries visit, and cuts
them into parts of about PART tiles. Programs of `ragged`, as many as run at once, take one item of
the list after another: a part of the keys for a tile of rows. `ragged_joined` joins the parts of a
row in order. So the bits of a request follow from its own tiles, whatever is in the call.

The list is of *entries*: requests, or heads of each where the mask tells heads apart. Items are
numbered through, entry after entry; those of one part are neighbours, as they read the same keys:

    item = first item of the entry + (part * heads of the entry + head) * tiles of rows + tile

The list, int32 `[3, entries]`, holds how many items an entry has, how many parts, and the first.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .decode import Given, Share, join, store_row, store_sums, sums_of_share
from .elements import SCALARS, Hooks
from .forward import Tile
from .requests import OF_REQUESTS, queries_of
from .runs import NO_TILE

_AT_ONCE = tl.constexpr(256)  # entries, or requests, that a program looks at side by side
_MOST_RUNS = tl.constexpr(64)  # that are counted one by one


class Entries(NamedTuple):
    """The list, and the numbers that it is made from.

    apart: entries of a request, one or as many as heads; members: query heads of a tile of rows.
    few: most queries of a request in the list. room: most items.
    """

    list_ptr: tl.tensor
    starts: tl.tensor
    batches: tl.tensor
    queries: tl.tensor
    apart: tl.tensor
    heads: tl.tensor
    members: tl.tensor
    few: tl.tensor
    room: tl.tensor


@triton.jit
def _live_tiles(
    j, q0, q1, batch, head, kv_len, S, T, NEXT_RUN: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """How many tiles of keys from j on queries q0..q1 visit: exact for few runs; after the last run
    that is looked at, every tile counts."""
    live = tl.zeros((), tl.int32)
    runs = tl.zeros((), tl.int32)
    while (j < NO_TILE) & (runs < _MOST_RUNS):
        first, end, _ = NEXT_RUN(j, q0, q1, batch, head, kv_len, S, T, BLOCK)
        live += tl.where(first < NO_TILE, end - first, 0).to(tl.int32)
        j = tl.where(first < NO_TILE, end, NO_TILE).to(tl.int32)
        runs += 1
    behind = ((kv_len + BLOCK - 1) // BLOCK - j).to(tl.int32)
    return live + tl.where(j < NO_TILE, tl.maximum(behind, 0), 0)


@triton.jit(
    do_not_specialize=["q_len", "kv_len", "batches", "few", "part_tiles", "room", *SCALARS]
)  # fmt: skip
def listed(
    list_ptr,
    T,
    pages,
    q_len,
    kv_len,
    batches,
    few,
    part_tiles,
    room,
    heads,
    members,
    apart,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    NEXT_RUN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WIDE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The items and parts of an entry: one program for each.

    part_tiles: tiles of keys in a part of a request with one tile of rows; with n tiles of rows,
    parts are n times as long. Other arguments as in `Entries` and `decode`.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    if DEPENDENT:
        gdc_launch_dependents()
    entry = tl.program_id(0)
    request, head = entry // apart, entry % apart
    _, count = queries_of(request, pages[1], batches, q_len)
    zero = tl.zeros((), tl.int64) if WIDE else tl.zeros((), tl.int32)
    begin = tl.where((count > 0) & (count <= few), 0, NO_TILE).to(tl.int32)
    live = _live_tiles(
        begin, zero, count - 1 + zero, request, head, kv_len, S, T, NEXT_RUN, BLOCK_N
    )  # fmt: skip
    tiles = tl.maximum((count * members + BLOCK_M - 1) // BLOCK_M, 1)
    part = part_tiles * tiles
    parts = (live + part - 1) // part
    items = parts * tiles * (heads // (members * apart))
    # Starts that descend would ask for more than there is room for.
    items = tl.minimum(tl.maximum(items, 0), room)
    entries = batches * apart
    tl.store(list_ptr + entry, items)
    tl.store(list_ptr + entries + entry, parts)


@triton.jit
def _number_of_items(of):
    """How many items all entries have, at most as many as there is room for."""
    entries = of.batches * of.apart
    count = tl.zeros((), tl.int32)
    for first in range(0, entries, _AT_ONCE):
        entry = first + tl.arange(0, _AT_ONCE)
        count += tl.sum(tl.load(of.list_ptr + entry, mask=entry < entries, other=0), 0)
    return tl.minimum(count, of.room)


@triton.jit
def _entry_of(item, of):
    """The entry of an item, and its first item."""
    entries = of.batches * of.apart
    found = tl.zeros((), tl.int32)
    begin = tl.zeros((), tl.int32)
    before = tl.zeros((), tl.int32)
    for first in range(0, entries, _AT_ONCE):
        entry = first + tl.arange(0, _AT_ONCE)
        items = tl.load(of.list_ptr + entry, mask=entry < entries, other=0)
        ends = before + tl.cumsum(items, 0)
        passed = (ends <= item) & (entry < entries)
        found += tl.sum(passed.to(tl.int32), 0)
        begin = tl.maximum(begin, tl.max(tl.where(passed, ends, 0), 0))
        before += tl.sum(items, 0)
    return tl.minimum(found, entries - 1), begin


@triton.jit
def _fill_item(
    item, part_ptr, statistic_ptr, kv_len, of, given, S, T, hooks, of_tile,
    BLOCK_M: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Store the sums of one item, and, for an entry's first item, its number in the list."""
    entry, begin = _entry_of(item, of)
    splits = tl.load(of.list_ptr + of.batches * of.apart + entry)
    request = entry // of.apart
    start, count = queries_of(request, of.starts, of.batches, of.queries)
    tiles = tl.maximum((count * of.members + BLOCK_M - 1) // BLOCK_M, 1)
    heads = of.heads // (of.members * of.apart)
    at = item - begin
    tile, head = at % tiles, at // tiles % heads
    split = at // (tiles * heads)
    first_head = (entry % of.apart * heads + head) * of.members
    sums = sums_of_share(
        Share(
            request, first_head, of.members, tile, split, tl.maximum(splits, 1),
            tl.zeros((), tl.int32), start, count, kv_len,
        ),
        given, S, T, hooks, of_tile, BLOCK_M, WIDE,
    )  # fmt: skip
    tl.store(of.list_ptr + 2 * of.batches * of.apart + entry, item, mask=at == 0)
    row = item.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = (of.room, BLOCK_M)
    store_sums(part_ptr, statistic_ptr, row, rows, sums, of_tile.VALUE_PAD)


@triton.jit(do_not_specialize=["q_len", "kv_len", "few", "room", *OF_REQUESTS, *SCALARS])
def ragged(
    q_ptr,
    k_ptr,
    v_ptr,
    part_ptr,
    statistic_ptr,
    list_ptr,
    T,
    descales,
    pages,
    scale,
    q_len,
    kv_len,
    few,
    room,
    batches,
    page_count,
    most_pages,
    table_stride,
    heads,
    group,
    members,
    apart,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
    S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    NUMBERS: tl.constexpr,
    TABLES: tl.constexpr,
    HOLD: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    NEXT_RUN: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DEPENDENT: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """The sums of the items of the list; a program takes one item after another.

    Arguments as in `decode` and `Entries`, and:

    part: float32 `[room, BLOCK_M, VALUE_PAD]`, statistic: float32 `[2, room, BLOCK_M]`, as in
    `decode` for each item. Only rows that exist are written.
    """
    S = (
        S0, S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11,
        S12, S13, S14, S15, S16, S17, S18, S19, S20, S21, S22, S23,
    )[:NUMBERS]  # fmt: skip
    T = T[:TABLES]
    if DEPENDENT:
        gdc_wait()
        gdc_launch_dependents()
    item = tl.program_id(0)
    count = _number_of_items(
        Entries(list_ptr, pages[1], batches, q_len, apart, heads, members, few, room)
    )
    while item < count:
        _fill_item(
            item, part_ptr, statistic_ptr, kv_len,
            Entries(list_ptr, pages[1], batches, q_len, apart, heads, members, few, room),
            Given(
                q_ptr, k_ptr, v_ptr,
                (stride_qb, stride_qh, stride_qm, stride_qd),
                (stride_kb, stride_kh, stride_kn, stride_kd),
                (stride_vb, stride_vh, stride_vn, stride_vd),
                descales, pages, (table_stride, most_pages, page_count), scale, heads, group,
            ),
            S, T,
            Hooks(HOLD, MASKED, BIASED, None, NEXT_RUN, WEIGHTED),
            Tile(BLOCK_N, HEAD_DIM, VALUE_DIM, HEAD_PAD, VALUE_PAD, False, PRECISION, PAGE),
            BLOCK_M, WIDE,
        )  # fmt: skip
        item += tl.num_programs(0)


@triton.jit
def _request_of_query(q, of):
    """The request that a packed query belongs to; number `batches` behind the last one."""
    request = tl.zeros((), tl.int32)
    for first in range(1, of.batches + 1, _AT_ONCE):
        r = first + tl.arange(0, _AT_ONCE)
        start = tl.load(of.starts + r, mask=r <= of.batches, other=0).to(tl.int32)
        request += tl.sum(((r <= of.batches) & (start <= q)).to(tl.int32), 0)
    return request


@triton.jit(do_not_specialize=["q_len", "few", "room", "batches"])
def ragged_joined(
    part_ptr,
    statistic_ptr,
    list_ptr,
    o_ptr,
    lse_ptr,
    sink_ptr,
    pages,
    q_len,
    few,
    room,
    batches,
    heads,
    members,
    apart,
    stride_ob, stride_oh, stride_om, stride_od,
    VALUE_DIM: tl.constexpr,
    VALUE_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WEIGHTED: tl.constexpr,
    NORMALISED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The output of one packed query of one head, and its lse, from the parts of its request.

    part, statistic and list come from `ragged` and `listed`; o, lse and sink as in `forward`.
    Nothing is written for requests with more than `few` queries. Queries after the last request
    have output 0; if `few` is less than `q_len`, the kernel of chunks runs and writes it.
    """
    if DEPENDENT:
        gdc_wait()
    pid = tl.program_id(0)
    head, q = pid // q_len, pid % q_len
    of = Entries(list_ptr, pages[1], batches, q_len, apart, heads, members, few, room)
    request = _request_of_query(q, of)
    start, count = queries_of(request, pages[1], batches, q_len)
    count = tl.where(request < batches, count, q_len)
    if count <= few:
        of_each = heads // (members * apart)
        of_tile = head // members
        entry = request * apart + of_tile // of_each
        exists = request < batches
        splits = tl.load(list_ptr + batches * apart + entry, mask=exists, other=0)
        begin = tl.load(list_ptr + 2 * batches * apart + entry, mask=splits > 0, other=0)
        tiles = tl.maximum((count * members + BLOCK_M - 1) // BLOCK_M, 1)
        row = (q - start) * members + head % members
        item = begin + of_tile % of_each * tiles + row // BLOCK_M
        step = of_each * tiles
        # Queries ahead of their request, and starts that descend, point anywhere.
        inside = (q >= start) & (item >= 0) & (item < room)
        inside = inside & (splits <= (room - 1 - item) // step + 1)
        m, l, acc = join(
            part_ptr, statistic_ptr, item.to(tl.int64) * BLOCK_M + row % BLOCK_M, step * BLOCK_M,
            tl.where(inside, splits, 0), (room, BLOCK_M), VALUE_PAD, WEIGHTED,
        )  # fmt: skip
        store_row(
            (o_ptr, lse_ptr, sink_ptr), m, l, acc, (0 * head, head, q, pid),
            (stride_ob, stride_oh, stride_om, stride_od), VALUE_DIM, VALUE_PAD, WEIGHTED,
            NORMALISED,
        )  # fmt: skip
