"""Rows of tiles that begin where documents begin, instead of at multiples of the tile.

A document is then computed as if it were alone: its tiles hold no other position, and they are
visited in an order that begins with it. So its results are the same bits, wherever it is packed.
"""

import triton
import triton.language as tl


@triton.jit
def row_of_tiles(row, documents, length, others, BLOCK: tl.constexpr):
    """The first position of a row of tiles, where the other side's tiles begin, and both ends.

    Args:
        documents: int32 `[rows, 3]`, for each row its first position, and the first position of its
            document and the one past its last; zeros in unused rows. None if rows begin at
            multiples of the tile.
        length, others: positions of the rows' side, and of the other.
    """
    if documents is None:
        return row * BLOCK, 0, length, others
    else:
        entry = documents + row * 3
        first = tl.load(entry)
        origin = tl.load(entry + 1)
        end = tl.load(entry + 2)
        return first, origin, tl.minimum(length, end), tl.minimum(others, end)


@triton.jit
def moved(source, origin, documents):
    """A source of tiles (`forward.source_of`), from the row `origin` on."""
    if documents is None:
        return source
    else:
        base, stride_n, stride_d = source
        return base + origin.to(tl.int64) * stride_n, stride_n, stride_d


@triton.jit
def keys_left(place):
    """How many keys there are from where tiles of keys begin."""
    return (place.kv_len - place.kv_idx).to(place.kv_len.dtype)
