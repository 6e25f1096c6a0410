"""Tiles for few queries against many keys, which several programs divide among themselves."""

from __future__ import annotations

from typing import Final

from .patterns import PATTERNS
from .shapes import Tile, machine

# Rows of a tile, which are queries of all heads that share keys: the smallest side that holds all
# rows, else the largest. Where there are warpgroups, one multiplies 64 rows, out of tiles copied by
# descriptor; Triton's compiler fails on that if tables are read at each element.
SIDES: Final = (16, 32, 64)

# By (largest padded head dimension, bytes of an element, rows). Measured on an H200: with few rows
# the bandwidth of memory is the limit, so the number of keys in flight counts.
_TILES: Final[dict[tuple[int, int, int], tuple[Tile, ...]]] = {
    (64, 2, 16): (Tile(16, 128, 4, 4), Tile(16, 64, 4, 3)),
    (64, 2, 32): (Tile(32, 128, 4, 3), Tile(32, 64, 4, 3)),
    (64, 2, 64): (Tile(64, 128, 4, 3), Tile(64, 64, 4, 3)),
    (128, 2, 16): (Tile(16, 64, 4, 4), Tile(16, 64, 4, 3), Tile(16, 32, 4, 2)),
    (128, 2, 32): (Tile(32, 128, 4, 3), Tile(32, 64, 4, 3), Tile(32, 32, 4, 2)),
    (128, 2, 64): (Tile(64, 128, 4, 3), Tile(64, 64, 4, 3)),
    (256, 2, 16): (Tile(16, 32, 4, 4), Tile(16, 32, 4, 3), Tile(16, 16, 4, 2)),
    (256, 2, 32): (Tile(32, 32, 4, 3), Tile(32, 16, 4, 2)),
    (256, 2, 64): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (64, 4, 16): (Tile(16, 64, 4, 3), Tile(16, 32, 4, 2)),
    (64, 4, 32): (Tile(32, 32, 4, 3), Tile(32, 16, 4, 2)),
    (128, 4, 16): (Tile(16, 64, 4, 2), Tile(16, 32, 4, 2)),
    (128, 4, 32): (Tile(32, 16, 4, 2),),
    (256, 4, 16): (Tile(16, 32, 8, 1), Tile(16, 16, 4, 2)),
}
# With many tiles of rows, two or three programs share a multiprocessor, and each hides the start
# and the end of the others. Measured with few rows in a tile; faster from three waves on.
_CROWDED: Final[dict[tuple[int, int, int], Tile]] = {
    (64, 2, 16): Tile(16, 64, 4, 3),
    (128, 2, 16): Tile(16, 64, 4, 2),
}
# For keys in pages, whose page numbers must be read first: two programs share a multiprocessor, and
# one reads while the other waits.
_PAGED: Final[dict[tuple[int, int, int], Tile]] = {
    (128, 2, 16): Tile(16, 64, 4, 3),
}
# Replacements where single warps multiply, as in `forward.py`.
_WARPS: Final[dict[tuple[int, int, int], tuple[Tile, ...]]] = {
    (64, 2, 32): (Tile(32, 64, 4, 3), Tile(32, 32, 4, 2)),
    (128, 2, 32): (Tile(32, 64, 4, 3), Tile(32, 32, 4, 2)),
    (128, 4, 16): (Tile(16, 32, 4, 2), Tile(16, 16, 4, 1)),
}
# Replacements where shared memory is small too: one tile less in flight.
_SMALL: Final[dict[tuple[int, int, int], tuple[Tile, ...]]] = {
    **_WARPS,
    (64, 2, 16): (Tile(16, 128, 4, 3), Tile(16, 64, 4, 3)),
    (128, 2, 16): (Tile(16, 64, 4, 3), Tile(16, 32, 4, 2)),
    (256, 2, 16): (Tile(16, 32, 4, 3), Tile(16, 16, 4, 2)),
}
_INTERPRETER: Final = (Tile(16, 32, 4, 1),)


def decode_programs_for(architecture: str, tile: Tile, *, paged: bool) -> int:
    """How many programs with a tile share a multiprocessor."""
    shared = paged and machine(architecture) == "warpgroups" and tile in _PAGED.values()
    return 2 if shared else 1


def decode_tiles_for(
    architecture: str,
    head_pad: int,
    element_bytes: int,
    pattern: str,
    rows: int,
    *,
    described: bool,
    crowded: bool,
    paged: bool = False,
) -> tuple[Tile, ...]:
    """Candidates in the order to try.

    Args:
        architecture, head_pad, element_bytes, pattern: as of `tiles_for`.
        rows: number of queries of one head, or of all heads that share keys.
        described: whether keys and values can be copied by descriptor.
        crowded: whether there are more than three tiles of rows for each multiprocessor.
        paged: whether keys lie in pages.
    """
    if architecture == "interpreter":
        return _INTERPRETER
    size = next(limit for limit in (64, 128, 256) if head_pad <= limit)
    where = machine(architecture)
    served = described and element_bytes == 2 and PATTERNS[pattern].described
    served = served and where == "warpgroups"
    found = max(element_bytes, 2)
    sides = [s for s in (SIDES if served else SIDES[:-1]) if (size, found, s) in _TILES]
    side = next((side for side in sides if rows <= side), sides[-1])
    at = (size, found, side)
    first = (_CROWDED[at],) if crowded and at in _CROWDED else ()
    if paged and not first and where == "warpgroups" and at in _PAGED:
        first = (_PAGED[at],)
    instead = {"warps": _WARPS, "small": _SMALL}.get(where, {})
    return first + instead.get(at, _TILES[at])
