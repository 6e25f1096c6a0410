"""Tiles of few queries against many keys, which programs share: tables as of `tiles`."""

from __future__ import annotations

from typing import Final

from .patterns import PATTERNS
from .shapes import Tile, machine

# Rows of a tile, queries and the heads that share their keys: the first that holds all, else the
# last. 64 are multiplied by a warpgroup, where there are any, out of tiles that are copied by
# descriptor; Triton's compiler fails on that where tables are read at each element.
SIDES: Final = (16, 32, 64)

# Keys: (largest padded head dimension, bytes of an element, rows). Measured on an H200: of few rows
# keys are read as fast as memory gives them, so what counts is how many are on their way.
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
# Of many rows, two or three programs share a multiprocessor: each hides what others begin and end
# with. Measured with few rows a tile; of three waves at least they are faster.
_CROWDED: Final[dict[tuple[int, int, int], Tile]] = {
    (64, 2, 16): Tile(16, 64, 4, 3),
    (128, 2, 16): Tile(16, 64, 4, 2),
}
# Of keys in pages, whose numbers are read before them: two programs share a multiprocessor, and one
# reads while the other waits.
_PAGED: Final[dict[tuple[int, int, int], Tile]] = {
    (128, 2, 16): Tile(16, 64, 4, 3),
}
# Instead of these where single warps multiply, as in `tiles`.
_WARPS: Final[dict[tuple[int, int, int], tuple[Tile, ...]]] = {
    (64, 2, 32): (Tile(32, 64, 4, 3), Tile(32, 32, 4, 2)),
    (128, 2, 32): (Tile(32, 64, 4, 3), Tile(32, 32, 4, 2)),
    (128, 4, 16): (Tile(16, 32, 4, 2), Tile(16, 16, 4, 1)),
}
# And where shared memory is small too: a tile less on its way.
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
        rows: queries of one head, or of all that share keys.
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
