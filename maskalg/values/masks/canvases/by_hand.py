"""Masks on canvases by hand: loops over coordinates.

A second definition on a canvas lists, for every axis and every query coordinate, the key
coordinates that are kept; a pair is kept when every axis keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from ...by_hand import Bools, pairs

Place = tuple[int, ...]
Numbers = int | Sequence[int]
Flags = bool | Sequence[bool]


def window_of(x: int, extent: int, window: int, dilation: int, causal: bool) -> set[int]:
    """The key coordinates that a query at `x` keeps on an axis of `extent` positions.

    Only positions y with `y % dilation == x % dilation` count. The window holds `window` of them
    centred on x, with one more before x than after if `window` is even, and is shifted as little as
    needed to stay inside. When causal, it holds the last `window` of them up to x.
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


def each(value: Numbers | Flags, rank: int) -> list[int]:
    return list(value) if isinstance(value, Sequence) else [int(value)] * rank


def extents_of(shape: Numbers) -> list[int]:
    return list(shape) if isinstance(shape, Sequence) else [shape]


def kept(
    order: Sequence[Place],
    axes: Callable[[int, int], set[int]],
    **at: int,
) -> Bools:
    """The mask of tokens that stand at the places `order`, with the coordinates an axis keeps."""

    def keep(b: int, h: int, q: int, k: int) -> bool:
        if not (0 <= q < len(order) and 0 <= k < len(order)):
            return False
        coordinates = enumerate(zip(order[q], order[k], strict=True))
        return all(y in axes(axis, x) for axis, (x, y) in coordinates)

    return pairs(keep, **at)


def row_major(extents: Sequence[int]) -> list[Place]:
    return list(product(*[range(extent) for extent in extents]))


def tile_major(extents: Sequence[int], tile: Sequence[int]) -> list[Place]:
    order = []
    for corner in product(*[range(0, e, t) for e, t in zip(extents, tile, strict=True)]):
        for place in product(*[range(side) for side in tile]):
            order.append(tuple(a + b for a, b in zip(corner, place, strict=True)))
    return order


def windows_of(
    shape: Numbers, window: Numbers, dilation: Numbers, causal: Flags
) -> Callable[[int, int], set[int]]:
    extents = extents_of(shape)
    rank = len(extents)
    sizes, steps, one_way = (each(value, rank) for value in (window, dilation, causal))
    table = {
        (axis, x): window_of(x, extents[axis], sizes[axis], steps[axis], bool(one_way[axis]))
        for axis in range(rank)
        for x in range(extents[axis])
    }
    return lambda axis, x: table[axis, x]
