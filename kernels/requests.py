"""Where keys and queries of a request lie: in pages, and packed with those of other requests.

A request is a batch entry. A table names, for each request, the pages of its keys in order: key n
is row n % PAGE of page `table[request, n // PAGE]`, whatever lies there. Numbers outside of the
pages are clamped, so that no table makes a kernel read elsewhere.
"""

from typing import NamedTuple

import triton
import triton.language as tl

OF_REQUESTS = ("batches", "page_count", "most_pages", "table_stride")
"""Numbers in a kernel's signature that Triton compiles no variants for."""

_AT_ONCE = tl.constexpr(128)  # requests that a program looks at side by side


class Pages(NamedTuple):
    """The row of a request in the table, how many pages it may name, and how many there are."""

    table: tl.tensor
    most: tl.tensor
    count: tl.tensor


@triton.jit
def pages_of(pages, j, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """The page in which the j-th tile of keys lies, or that of each key where it spans several."""
    if PAGE % BLOCK == 0:
        slot = j * BLOCK // PAGE
    else:
        slot = (j * BLOCK + tl.arange(0, BLOCK)) // PAGE
    slot = tl.minimum(tl.maximum(slot, 0), pages.most - 1)
    page = tl.load(pages.table + slot)
    return tl.minimum(tl.maximum(page, 0), pages.count - 1)


@triton.jit
def rows_of(page, j, stride_page, stride_n, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of the keys of the j-th tile, `[BLOCK]`, in the pages from `pages_of`."""
    if PAGE % BLOCK == 0:
        row = j * BLOCK % PAGE + tl.arange(0, BLOCK)
    else:
        row = (j * BLOCK + tl.arange(0, BLOCK)) % PAGE
    return page.to(tl.int64) * stride_page + row.to(tl.int64) * stride_n


@triton.jit
def request_of(
    tile, starts, batches, queries, members, BLOCK: tl.constexpr, FEW: tl.constexpr
):  # fmt: skip
    """For packed queries: the request of a tile of rows, the tile's number in the request, and the
    request's first query and number of queries.

    A row is a query of one of `members` heads. Tiles of request r begin at
    `starts[r] * members // BLOCK + r`: at least as many as its rows need. Behind the last request
    there is one more, number `batches`, of the queries that belong to none. Requests with up to FEW
    queries have none here: those are left to `ragged`.

    Args:
        starts: the first query of each request and the end of the last, `[batches + 1]`.
        queries: number of queries, those of no request included.
    """
    request = tl.zeros((), tl.int32) - 1
    for first in range(0, batches + 1, _AT_ONCE):
        r = first + tl.arange(0, _AT_ONCE)
        start = tl.load(starts + r, mask=r <= batches, other=0).to(tl.int32)
        start = tl.minimum(tl.maximum(start, 0), queries)
        begins = (start * members) // BLOCK + r
        request += tl.sum(((r <= batches) & (begins <= tile)).to(tl.int32), 0)
    request = tl.maximum(request, 0)
    own, start, count = lies_in(request, tile, starts, batches, queries, members, BLOCK, FEW)
    return request, own, start, count


@triton.jit
def request_at(tile, starts, batches, queries, members, BLOCK: tl.constexpr):
    """The request of `request_of`, found by halving; Gluon spells this alike."""
    request = tl.cast(0, tl.int32)
    past = batches + 1
    while past - request > 1:
        middle = (request + past) // 2
        start = tl.load(starts + middle).to(tl.int32)
        start = tl.minimum(tl.maximum(start, 0), queries)
        before = (start * members) // BLOCK + middle <= tile
        request = tl.where(before, middle, request)
        past = tl.where(before, past, middle)
    return request


@triton.jit
def lies_in(
    request, tile, starts, batches, queries, members, BLOCK: tl.constexpr, FEW: tl.constexpr
):  # fmt: skip
    """A tile's number in its request, and the request's first query and number of queries, as in
    `request_of`."""
    start, count = queries_of(request, starts, batches, queries)
    own = tile - ((start * members) // BLOCK + request)
    if FEW > 0:
        count = tl.where((request < batches) & (count <= FEW), 0, count)
    return own, start, count


@triton.jit
def queries_of(request, starts, batches, queries):
    """The first query of a request and its number of queries; for `batches`, of no request."""
    start = tl.load(starts + request).to(tl.int32)
    start = tl.minimum(tl.maximum(start, 0), queries)
    end = tl.load(starts + request + 1, mask=request < batches, other=queries).to(tl.int32)
    end = tl.minimum(tl.maximum(end, start), queries)
    return start, end - start
