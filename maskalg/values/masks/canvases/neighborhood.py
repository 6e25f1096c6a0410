"""Neighborhood attention on canvases of one to three axes, in three orders of tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ....formula import nodes
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import Table
from ....formula.printing import Label
from ...algebra import Mask
from ...by_hand import Bools, MaskRows, row
from . import by_hand
from .canvas import (
    Flags,
    Sizes,
    canvas,
    inside,
    printed,
    printed_products,
    row_major,
    tile_major,
    tiling,
    value_of,
    windows_on,
    within,
)

__all__ = ["neighborhood", "tiled_neighborhood", "morton_neighborhood"]


def neighborhood(shape: Sizes, window: Sizes, dilation: Sizes = 1, causal: Flags = False) -> Mask:
    """On every axis of an image or video (the canvas), the `window` keys centred on the query.

    Near a border the window is shifted to stay inside the canvas, so that a query in the canvas
    keeps `window` keys an axis wherever it stands. An even window reaches one further back than
    ahead. With a dilation d, the same holds among the positions with the query's remainder mod d.
    On a causal axis the window ends at the query instead, and is cut by the border.

    Tokens are in row-major order. Positions outside of the canvas keep nothing and are not kept.

    Args:
        shape: extents of the canvas, one to three of them, the slowest first.
        window: keys for each axis, >= 1; one number serves every axis.
        dilation: steps between keys for each axis, >= 1, with window * dilation <= extent.
        causal: for each axis, whether keys ahead of the query are dropped.

    Source: NATTEN (Hassani et al., "Neighborhood Attention Transformer", 2023; dilated: 2022;
    causal: "Faster Neighborhood Attention", 2024).
    """
    extents = canvas("neighborhood", shape)
    windows, parts = windows_on("neighborhood", extents, window, dilation, causal)
    numbers = [extent for extent, _ in extents]
    q, k = row_major(numbers, Q), row_major(numbers, K)
    node = nodes.conjunction(inside(windows, q, k), within(numbers[0], q[0]))
    return Mask(node, SCORE, Label("call", ("neighborhood", printed(extents), *parts)))


def tiled_neighborhood(shape: Sizes, tile: Sizes, window: Sizes, causal: Flags = False) -> Mask:
    """`neighborhood` on tokens that are stored tile by tile.

    The tiles of the canvas follow each other in row-major order, and so do the tokens of a tile:
    neighbours are stored close to each other, and a block of queries meets few blocks of keys.

    Args:
        shape: extents of the canvas, as `neighborhood` takes them.
        tile: sides of a tile, >= 1; each divides the canvas.
        window: keys for each axis, as in `neighborhood`; likewise `causal`.

    Source: static tiles of attention-gym; token permutation of NATTEN (Hassani et al.,
    "Generalized Neighborhood Attention", 2025).
    """
    call = "tiled_neighborhood"
    tiles, sides = tiling(call, shape, tile)
    windows, parts = windows_on(call, canvas(call, shape), window, causal=causal)
    counts, lengths = [count for count, _ in tiles], [side for side, _ in sides]
    windows = [
        replace(w, extent=nodes.mul(a, b)) for w, a, b in zip(windows, counts, lengths, strict=True)
    ]
    q, k = tile_major(counts, lengths, Q), tile_major(counts, lengths, K)
    node = nodes.conjunction(inside(windows, q, k), within(windows[0].extent, q[0]))
    label = Label("call", (call, printed_products(tiles, sides), printed(sides), *parts))
    return Mask(node, SCORE, label)


def morton_neighborhood(
    shape: Sizes,
    window: Sizes,
    dilation: Sizes = 1,
    causal: Flags = False,
    *,
    device: torch.device | str | None = None,
) -> Mask:
    """`neighborhood` on tokens in Morton order (along a Z-shaped curve).

    Tokens are sorted by the number whose bits are those of their coordinates, interleaved, the
    fastest axis lowest; a canvas need not be square nor a power of two. The coordinates are
    tables, int32 `[tokens]`, so lengths are at most the size of the canvas.

    Args:
        shape: extents of the canvas, as `neighborhood` takes them.
        window: keys for each axis, as in `neighborhood`; likewise `dilation` and `causal`.
        device: where the tables live.

    Source: Morton-ordered neighborhood of attention-gym.
    """
    call = "morton_neighborhood"
    extents = canvas(call, shape)
    windows, parts = windows_on(call, extents, window, dilation, causal)
    tables = [
        Table(f"{extent.name}_of", places.to(device=device, dtype=torch.int32))
        for (_, extent), places in zip(
            extents, _morton([value_of(extent) for extent in extents]), strict=True
        )
    ]
    q, k = ([nodes.read(table, x) for table in tables] for x in (Q, K))
    return Mask(inside(windows, q, k), SCORE, Label("call", (call, printed(extents), *parts)))


def _morton(extents: list[int]) -> list[torch.Tensor]:
    """The coordinates of the tokens of a canvas in Morton order."""
    axes = len(extents)
    code = torch.zeros([1] * axes, dtype=torch.int64)
    for axis, extent in enumerate(extents):
        spread = _spread(extent, axes) << (axes - 1 - axis)
        code = code + spread.view([-1 if other == axis else 1 for other in range(axes)])
    place = code.flatten().argsort()
    coordinates = []
    for extent in reversed(extents):
        coordinates.append(place % extent)
        place = place // extent
    return coordinates[::-1]


def _spread(extent: int, axes: int) -> torch.Tensor:
    """The numbers below `extent`, each bit moved to `axes` times its place."""
    number = torch.arange(extent)
    spread = torch.zeros_like(number)
    for bit in range(extent.bit_length()):
        spread |= (number >> bit & 1) << (bit * axes)
    return spread


# The second definition, and the rows of the catalogue.


def neighborhood_by_hand(
    shape: by_hand.Numbers,
    window: by_hand.Numbers,
    dilation: by_hand.Numbers = 1,
    causal: by_hand.Flags = False,
    **at: int,
) -> Bools:
    """On every axis the window around the query; tokens in row-major order."""
    axes = by_hand.windows_of(shape, window, dilation, causal)
    return by_hand.kept(by_hand.row_major(by_hand.extents_of(shape)), axes, **at)


def tiled_neighborhood_by_hand(
    shape: by_hand.Numbers,
    tile: by_hand.Numbers,
    window: by_hand.Numbers,
    causal: by_hand.Flags = False,
    **at: int,
) -> Bools:
    """The same with tokens stored tile by tile."""
    extents = by_hand.extents_of(shape)
    order = by_hand.tile_major(extents, by_hand.each(tile, len(extents)))
    axes = by_hand.windows_of(shape, window, 1, causal)
    return by_hand.kept(order, axes, **at)


def morton_neighborhood_by_hand(
    shape: by_hand.Numbers,
    window: by_hand.Numbers,
    dilation: by_hand.Numbers = 1,
    causal: by_hand.Flags = False,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """The same with tokens in the order of their interleaved bits."""

    def code(place: by_hand.Place) -> str:
        bits = [f"{x:020b}" for x in place]
        return "".join("".join(digits) for digits in zip(*bits, strict=True))

    order = sorted(by_hand.row_major(by_hand.extents_of(shape)), key=code)
    if not (0 <= q_shift <= len(order) - q_len and 0 <= kv_shift <= len(order) - kv_len):
        raise IndexError("a position outside of the canvas")
    axes = by_hand.windows_of(shape, window, dilation, causal)
    at = {"q_len": q_len, "kv_len": kv_len, "q_shift": q_shift, "kv_shift": kv_shift}
    return by_hand.kept(order, axes, **at)


def rows() -> MaskRows:
    plain = partial(row, neighborhood, neighborhood_by_hand)
    tiled = (4, 9), (2, 3), (3, 4)
    return {
        "neighborhood on a line": plain(38, 7, 3),
        "neighborhood on an image": plain((5, 8), (3, 4)),
        "neighborhood, dilated and causal": plain((4, 10), (2, 3), (1, 3), (True, False)),
        "neighborhood on a video": plain((3, 4, 3), (2, 3, 2), 1, (True, False, False)),
        "neighborhood by tiles": row(tiled_neighborhood, tiled_neighborhood_by_hand, *tiled),
    }
