"""Tiles of the gradient kernels, in tables like those of `forward.py`."""

from __future__ import annotations

from typing import Final, Literal

from .pattern import Plain, of_size
from .patterns import PATTERNS
from .shapes import INTERPRETER, HopperBackwardTile, Least, Tile, machine

# Of the gradients: block_q x block_kv. dQ loops over keys, dK and dV over queries.
_BACKWARD_QUERIES: Final[Plain] = {
    (64, 2): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (256, 2): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
    (64, 4): (Tile(32, 32, 4, 2), Tile(32, 16, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
    (256, 4): (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1), Tile(16, 32, 8, 1)),
}
_BACKWARD_KEYS: Final[Plain] = {
    (64, 2): (Tile(128, 64, 4, 2, one_loop=True), Tile(64, 64, 4, 2), Tile(32, 64, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(32, 64, 4, 2)),
    (256, 2): (Tile(32, 64, 8, 1), Tile(32, 32, 8, 1)),
    (64, 4): (Tile(32, 32, 4, 2), Tile(16, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 8, 1), Tile(16, 32, 4, 1)),
    (256, 4): (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1, one_loop=True), Tile(16, 16, 4, 1)),
}
# For rows of few tiles, most of them masked: fewer queries at a time waste fewer elements, and
# leave registers for what the mask reads.
_BACKWARD_KEYS_SPARSE: Final[Plain] = {
    **_BACKWARD_KEYS,
    (64, 2): (Tile(32, 64, 4, 2), Tile(32, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(32, 64, 4, 2, one_loop=True)),
}
_BACKWARD_QUERIES_SPARSE: Final[Plain] = {
    **_BACKWARD_QUERIES,
    (64, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
}
# Replacements where single warps multiply, and where shared memory is small too; see `forward.py`.
# Eight warps need half the registers for the sums of 64 keys and for the operands.
_WARPS_QUERIES: Final[Plain] = {
    (256, 2): (Tile(64, 32, 8, 2), Tile(32, 32, 4, 1)),
}
# For the gradients of tables, which spill 500 bytes and more with 16 keys, except on sm_120.
_ENTRIES: Final[Plain] = {
    (256, 4): (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
}
_WARPS_KEYS: Final[Plain] = {
    (64, 2): (Tile(64, 64, 4, 2), Tile(32, 64, 4, 2), Tile(32, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 8, 2), Tile(32, 64, 8, 2)),
    (256, 2): (Tile(32, 64, 8, 1), Tile(32, 32, 8, 1)),
}
_SMALL_QUERIES: Final[Plain] = {
    (256, 2): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
}
_SMALL_KEYS: Final[Plain] = {
    **_WARPS_KEYS,
    (256, 2): (Tile(32, 32, 8, 1), Tile(16, 32, 4, 1)),
}


def backward_tiles_for(
    architecture: str,
    head_pad: int,
    element_bytes: int,
    pattern: str,
    *,
    of: Literal["queries", "keys", "entries"],
) -> tuple[Tile, ...]:
    """Candidates for the gradients of queries, of keys and values, or of the entries of tables;
    arguments as above."""
    if architecture == "interpreter":
        return INTERPRETER
    where = machine(architecture)
    dense = PATTERNS[pattern].long or where == "amd"
    if of == "keys":
        table = _BACKWARD_KEYS if dense else _BACKWARD_KEYS_SPARSE
        instead = {"warps": _WARPS_KEYS, "small": _SMALL_KEYS}
    else:
        table = _BACKWARD_QUERIES if dense else _BACKWARD_QUERIES_SPARSE
        instead = {"warps": _WARPS_QUERIES, "small": _SMALL_QUERIES}
        if of == "entries":
            instead = {kind: tiles | _ENTRIES for kind, tiles in instead.items()}
    size = next(limit for limit in (64, 128, 256) if head_pad <= limit)
    at = (size, element_bytes)
    if where in instead and (dense or at != (64, 2)):
        return instead[where].get(at, table[at])
    return table[at]


# For heads of more than 128 dimensions, by kernel and size, whatever the pattern.
_WIDE: Final = {
    "queries": {
        160: HopperBackwardTile(64, 5, overlap=True, one_ring=True),
        192: HopperBackwardTile(64, 3),
        256: HopperBackwardTile(64, 3, one_ring=True),
    },
    "keys": {
        192: HopperBackwardTile(64, 3, divided=True),
        256: HopperBackwardTile(64, 2, divided=True),
    },
}


def hopper_backward_tile_for(
    architecture: str,
    size: int,
    element_bytes: int,
    pattern: str,
    *,
    of: Literal["queries", "keys"],
    biased: bool,
    weighted: bool = False,
) -> HopperBackwardTile | None:
    """The configuration of a warp-specialised gradient kernel, or None where the plain one serves.

    Arguments as of `backward_tiles_for` and `hopper_tile_for`.
    """
    if architecture != "sm_90" or element_bytes != 2:
        return None
    found = PATTERNS[pattern]
    if weighted:
        tile = found.weighted_queries if of == "queries" else found.weighted_keys
        return tile if size in (96, 128) else None
    table = found.queries if of == "queries" else found.keys
    return of_size(_WIDE[of], size) or (of_size(table, size) or (None, None))[biased]


def one_pass_for(
    architecture: str,
    head_pad: int,
    element_bytes: int,
    pattern: str,
    *,
    additive: bool,
    weighted: bool = False,
) -> Least | None:
    """The least sizes for which one kernel computes all gradients; None if no such kernel serves.

    Lengths and the width of a band choose between it and two kernels; nothing is compiled for their
    values.

    The mask must be the same for all batch entries and heads. Arguments as above; `additive` says
    whether a bias, if any, is only added to the score.
    """
    served = architecture == "sm_90" and element_bytes == 2 and additive and not weighted
    # It serves a softmax whose bias, if any, is only added to the score. Another bias needs the
    # score itself, which this kernel does not compute, and too many registers for its derivative.
    found = PATTERNS[pattern]
    return found.least if served and head_pad in found.one_pass else None
