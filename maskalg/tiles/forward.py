"""Tiles of the forward kernels: by architecture, head dimension, dtype and pattern.

Nothing is compiled for the values of a mask. Candidates are tried in order: one that needs more
shared memory or registers than the device has gives way to the next
(`backends/triton/launching/fitting.py`), so the first should fit whatever the expression is.
"""

from __future__ import annotations

from typing import Final

from .pattern import Plain, of_size
from .patterns import PATTERNS
from .shapes import INTERPRETER, HopperTile, Tile, machine

# Replacements where single warps multiply: compiled for sm_80, sm_86, sm_89 and sm_120, not
# measured. They leave registers for what masks and biases of the catalogue need. These tiles, and
# those of the patterns that they do not replace, fit into small shared memory too.
_WARPS: Final[Plain] = {
    (256, 2): (Tile(64, 32, 8, 2), Tile(32, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 2), Tile(32, 16, 4, 1)),
}
_AMD: Final[Plain] = {
    (64, 2): (Tile(128, 64, 4, 1), Tile(64, 32, 4, 1)),
    (128, 2): (Tile(128, 64, 8, 1), Tile(64, 32, 4, 1)),
    (256, 2): (Tile(64, 32, 4, 1), Tile(32, 32, 4, 1)),
    (64, 4): (Tile(64, 32, 4, 1), Tile(32, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
    (256, 4): (Tile(32, 16, 4, 1), Tile(16, 16, 4, 1)),
}


def tiles_for(
    architecture: str, head_pad: int, element_bytes: int, pattern: str
) -> tuple[Tile, ...]:
    """Candidates in the order to try.

    Args:
        architecture: such as "sm_90" or "gfx942", or "interpreter".
        head_pad: the larger of the padded head dimensions of key and value, at most 256.
        element_bytes: 1, 2 or 4; elements of 1 byte take the tiles of 2.
        pattern: the name of the pattern of the mask's rows.
    """
    if architecture == "interpreter":
        return INTERPRETER
    where = machine(architecture)
    table = _AMD if where == "amd" else PATTERNS[pattern].plain
    if where in ("warps", "small"):
        table = table | _WARPS
    size = next(limit for limit in (64, 128, 256) if head_pad <= limit)
    return table[size, max(element_bytes, 2)]


def hopper_tile_for(
    architecture: str,
    size: int,
    element_bytes: int,
    pattern: str,
    *,
    biased: bool,
    weighted: bool = False,
) -> HopperTile | None:
    """The configuration of the warp-specialised kernel, or None where the plain one serves.

    Arguments as of `tiles_for`; `size` as of `size_of`; `biased` says whether the expression
    changes scores, `weighted` whether its result is the weight itself, without a softmax.
    """
    if architecture != "sm_90" or element_bytes > 2:
        return None
    found = PATTERNS[pattern]
    if weighted:
        return None if element_bytes == 1 else of_size(found.weighted, size)
    table = found.float8 if element_bytes == 1 else found.hopper
    return (of_size(table, size) or (None, None))[biased]
