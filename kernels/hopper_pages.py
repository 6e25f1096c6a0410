"""Requests on Hopper: keys copied page by page, queries packed with those of other requests.

A tile of keys is one piece if pages hold whole tiles, else several pieces, whose size divides both
page and tile. The tensor memory accelerator copies each piece to its rows of one tile in shared
memory, and one barrier waits for all bytes. Page numbers of the next tile are loaded meanwhile.
"""

from typing import NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .gluon_names import copy_to_shared
from .requests import lies_in, request_at


class Requests(NamedTuple):
    """The arguments of requests (`requests`): tensors, and numbers of OF_REQUESTS."""

    pages: gl.tuple
    batches: gl.tensor
    page_count: gl.tensor
    most_pages: gl.tensor
    table_stride: gl.tensor


class Lying(NamedTuple):
    """Where the queries of a row of tiles lie: the batch entry of `q`, the row in it of query 0 of
    the request, and the number of the request's queries."""

    entry: gl.tensor
    start: gl.tensor
    count: gl.tensor


@gluon.jit
def pages_of_tile(batch, j, requests, PAGE: gl.constexpr, PIECE: gl.constexpr, BLOCK: gl.constexpr):
    """The page of each piece, of PIECE keys, of the j-th tile of keys of a request.

    Numbers are clamped: no table makes a copy read elsewhere.
    """
    table = requests.pages[0] + batch.to(gl.int64) * requests.table_stride
    found = ()
    for piece in gl.static_range(BLOCK // PIECE):
        slot = (j * BLOCK + piece * PIECE) // PAGE
        slot = gl.minimum(gl.maximum(slot, 0), requests.most_pages - 1)
        page = gl.load(table + slot)
        page = gl.minimum(gl.maximum(page, 0), requests.page_count - 1)
        found = found + (page.to(gl.int32),)
    return found


@gluon.jit
def load_pieces(desc, pages, j, head, ready, memory, stage, PAGE: gl.constexpr):
    """Start the copy of the j-th tile of keys from these pages to shared memory."""
    for place in gl.static_range(len(memory)):
        column = place * memory[0].shape[4]
        _load_side(desc, pages, j, head, column, ready, memory[place].index(stage), PAGE)


@gluon.jit
def _load_side(desc, pages, j, head, column, ready, side, PAGE: gl.constexpr):
    BLOCK: gl.constexpr = side.shape[2]
    PIECE: gl.constexpr = desc.block_shape[2]
    WIDTH: gl.constexpr = desc.block_shape[3]
    for piece in gl.static_range(len(pages)):
        row = (j * BLOCK + piece * PIECE) % PAGE
        for across in gl.static_range(side.shape[3] // WIDTH):
            part = side.slice(piece * PIECE, PIECE, dim=2).slice(across * WIDTH, WIDTH, dim=3)
            at = [pages[piece], head, row, column + across * WIDTH]
            copy_to_shared(desc, at, ready, part)


@gluon.jit
def request_of_row(
    row, batch, q_len, kv_len, requests, QUERIES: gl.constexpr, FEW: gl.constexpr
):  # fmt: skip
    """For a row of tiles: its request, its number in the request, how many keys it may have, and
    where its queries lie.

    If queries are not packed, they are those of batch entry `batch`.
    """
    lying = Lying(batch, 0, q_len)
    if len(requests.pages) > 1:  # packed
        batches = requests.batches
        batch = request_at(row, requests.pages[1], batches, q_len, 1, QUERIES)
        row, start, count = lies_in(batch, row, requests.pages[1], batches, q_len, 1, QUERIES, FEW)
        lying = Lying(0, start, count)
        kv_len = gl.where((batch < batches) & (row * QUERIES < count), kv_len, 0)
        batch = gl.minimum(batch, batches - 1)
    return batch, row, kv_len, lying
