"""Sliding tile attention: neighborhoods of whole tiles, for video."""

from __future__ import annotations

from ....formula import nodes
from ....formula.nodes import SCORE, K, Q
from ....formula.printing import Label
from ...algebra import Mask
from ...arguments import integer
from ...by_hand import Bools, MaskRows, pairs, row
from . import by_hand
from .canvas import (
    Sizes,
    inside,
    printed,
    printed_products,
    row_major,
    tiling,
    windows_on,
    within,
)

__all__ = ["sliding_tile"]


def sliding_tile(shape: Sizes, tile: Sizes, window: Sizes, text: int = 0) -> Mask:
    """Tokens keep, on every axis, the `window` tiles that are centred on their own tile.

    The canvas is cut in tiles, and its tokens are stored tile by tile, so that a tile is a range
    of positions and every tile of the window is kept as a whole. Near a border the window is
    shifted to stay inside, as `neighborhood` does. `text` tokens follow those of the canvas; they
    keep every token and every token keeps them. Positions past the last one keep nothing and are
    not kept.

    Args:
        shape: extents of the canvas in tokens, one to three of them, the slowest first.
        tile: sides of a tile in tokens, >= 1; each divides the canvas.
        window: tiles for each axis, >= 1, at most those the canvas has.
        text: number of text tokens, >= 0; 0 leaves them out of the formula.

    Source: Sliding Tile Attention (Zhang et al., "Fast Video Generation with Sliding Tile
    Attention", 2025), whose kernels count windows in tiles too.
    """
    call = "sliding_tile"
    tiles, sides = tiling(call, shape, tile)
    windows, parts = windows_on(call, tiles, window)
    counts = [count for count, _ in tiles]
    volume = nodes.mul(*[side for side, _ in sides])
    q, k = (row_major(counts, nodes.floordiv(x, volume)) for x in (Q, K))
    node = nodes.conjunction(inside(windows, q, k), within(counts[0], q[0]))
    names = (call, printed_products(tiles, sides), printed(sides), *parts)
    if text == 0 and type(text) is int:
        return Mask(node, SCORE, Label("call", names))
    words, printed_words = integer(call, "text", text, low=0)
    canvas = nodes.mul(*counts, volume)
    end = nodes.add(canvas, words)
    node = nodes.conjunction(
        nodes.disjunction(node, nodes.ge(Q, canvas), nodes.ge(K, canvas)),
        within(end, Q),
        within(end, K),
    )
    return Mask(node, SCORE, Label("call", (*names, printed_words)))


# The second definition, and the rows of the catalogue.


def sliding_tile_by_hand(
    shape: by_hand.Numbers,
    tile: by_hand.Numbers,
    window: by_hand.Numbers,
    text: int = 0,
    **at: int,
) -> Bools:
    """The whole tiles of the window around the query's tile; `text` tokens keep and are kept."""
    extents = by_hand.extents_of(shape)
    sides = by_hand.each(tile, len(extents))
    places = by_hand.tile_major(extents, sides)
    order = [tuple(x // t for x, t in zip(place, sides, strict=True)) for place in places]
    tiles = [extent // side for extent, side in zip(extents, sides, strict=True)]
    axes = by_hand.windows_of(tiles, window, 1, False)
    end = len(order) + text

    def beside(b: int, h: int, q: int, k: int) -> bool:
        return 0 <= q < end and 0 <= k < end and max(q, k) >= len(order)

    return by_hand.kept(order, axes, **at) | pairs(beside, **at)


def rows() -> MaskRows:
    square, text = ((6, 6), (2, 3), (1, 2)), ((4, 4, 2), (2, 2, 1), (1, 2, 2), 6)
    return {
        "sliding tiles": row(sliding_tile, sliding_tile_by_hand, *square),
        "sliding tiles and text": row(sliding_tile, sliding_tile_by_hand, *text),
    }
