"""Masks on canvases once more, from their definitions, by loops over coordinates.

Nothing here shares code with the rest of the package. Each function lists, for every axis and
every query coordinate, the key coordinates that are kept; a pair is kept when every axis keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from .oracle import Bools

Place = tuple[int, ...]
Numbers = int | Sequence[int]
Flags = bool | Sequence[bool]


def window_of(x: int, extent: int, window: int, dilation: int, causal: bool) -> set[int]:
    """The key coordinates that a query at `x` keeps on an axis of `extent` positions.

    Positions with the remainder of x are taken as a sequence of their own. There, `window` of
    them are centred on x, an even window with one more before x than after, and moved just so
    far that all of them exist; or, when causal, the last `window` up to x.
    """
    line = [y for y in range(extent) if y % dilation == x % dilation]
    here = line.index(x)
    if causal:
        return set(line[max(here - window + 1, 0) : here + 1])
    first = here - window // 2
    while first < 0:
        first += 1
    while first + window > len(line):
        first -= 1
    return set(line[first : first + window])


def _each(value: Numbers | Flags, rank: int) -> list[int]:
    return list(value) if isinstance(value, Sequence) else [int(value)] * rank


def _extents(shape: Numbers) -> list[int]:
    return list(shape) if isinstance(shape, Sequence) else [shape]


def _kept(
    order: Sequence[Place],
    axes: Callable[[int, int], set[int]],
    lengths: tuple[int, int],
    shifts: tuple[int, int],
) -> Bools:
    """The mask of tokens that stand at the places `order`, with the coordinates an axis keeps."""
    keep = np.zeros((1, 1, *lengths), np.bool_)
    for i in range(lengths[0]):
        for j in range(lengths[1]):
            q, k = i + shifts[0], j + shifts[1]
            if 0 <= q < len(order) and 0 <= k < len(order):
                pairs = enumerate(zip(order[q], order[k], strict=True))
                keep[0, 0, i, j] = all(b in axes(axis, a) for axis, (a, b) in pairs)
    return keep


def _row_major(extents: Sequence[int]) -> list[Place]:
    return list(product(*[range(extent) for extent in extents]))


def _tile_major(extents: Sequence[int], tile: Sequence[int]) -> list[Place]:
    order = []
    for corner in product(*[range(0, e, t) for e, t in zip(extents, tile, strict=True)]):
        for place in product(*[range(side) for side in tile]):
            order.append(tuple(a + b for a, b in zip(corner, place, strict=True)))
    return order


def _windows(
    shape: Numbers, window: Numbers, dilation: Numbers, causal: Flags
) -> Callable[[int, int], set[int]]:
    extents = _extents(shape)
    rank = len(extents)
    sizes, steps, one_way = (_each(value, rank) for value in (window, dilation, causal))
    table = {
        (axis, x): window_of(x, extents[axis], sizes[axis], steps[axis], bool(one_way[axis]))
        for axis in range(rank)
        for x in range(extents[axis])
    }
    return lambda axis, x: table[axis, x]


def neighborhood(
    shape: Numbers,
    window: Numbers,
    dilation: Numbers = 1,
    causal: Flags = False,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """On every axis the window around the query; tokens in row-major order."""
    axes = _windows(shape, window, dilation, causal)
    return _kept(_row_major(_extents(shape)), axes, (q_len, kv_len), (q_shift, kv_shift))


def tiled_neighborhood(
    shape: Numbers,
    tile: Numbers,
    window: Numbers,
    causal: Flags = False,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """The same with tokens stored tile by tile."""
    extents = _extents(shape)
    order = _tile_major(extents, _each(tile, len(extents)))
    axes = _windows(shape, window, 1, causal)
    return _kept(order, axes, (q_len, kv_len), (q_shift, kv_shift))


def morton_neighborhood(
    shape: Numbers,
    window: Numbers,
    dilation: Numbers = 1,
    causal: Flags = False,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """The same with tokens in the order of their interleaved bits."""

    def code(place: Place) -> str:
        bits = [f"{x:020b}" for x in place]
        return "".join("".join(digits) for digits in zip(*bits, strict=True))

    order = sorted(_row_major(_extents(shape)), key=code)
    if not (0 <= q_shift <= len(order) - q_len and 0 <= kv_shift <= len(order) - kv_len):
        raise IndexError("a position outside of the canvas")
    axes = _windows(shape, window, dilation, causal)
    return _kept(order, axes, (q_len, kv_len), (q_shift, kv_shift))


def sliding_tile(
    shape: Numbers,
    tile: Numbers,
    window: Numbers,
    text: int = 0,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """Tiles of the window around the query's tile, as wholes; then `text` tokens, with all."""
    extents = _extents(shape)
    sides = _each(tile, len(extents))
    places = _tile_major(extents, sides)
    order = [tuple(x // t for x, t in zip(place, sides, strict=True)) for place in places]
    tiles = [extent // side for extent, side in zip(extents, sides, strict=True)]
    axes = _windows(tiles, window, 1, False)
    keep = _kept(order, axes, (q_len, kv_len), (q_shift, kv_shift))
    end = len(order) + text
    for i in range(q_len):
        for j in range(kv_len):
            q, k = i + q_shift, j + kv_shift
            if 0 <= q < end and 0 <= k < end and max(q, k) >= len(order):
                keep[0, 0, i, j] = True
    return keep


def spatial(
    frame: int,
    reach: int = 0,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """Frames at most `reach` apart."""
    keep = np.zeros((1, 1, q_len, kv_len), np.bool_)
    for i in range(q_len):
        for j in range(kv_len):
            keep[0, 0, i, j] = abs((i + q_shift) // frame - (j + kv_shift) // frame) <= reach
    return keep


def temporal(
    frame: int,
    reach: int = 0,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """Places in their frames at most `reach` apart."""
    keep = np.zeros((1, 1, q_len, kv_len), np.bool_)
    for i in range(q_len):
        for j in range(kv_len):
            keep[0, 0, i, j] = abs((i + q_shift) % frame - (j + kv_shift) % frame) <= reach
    return keep
