"""Tile shapes: one table from architecture, head dimension and dtype to a kernel configuration.

Chosen by structure, and by lengths; nothing is compiled for the values of a mask. Candidates are
tried in order: one that needs more shared memory or registers than the device has gives way to the
next (`backends/triton/launching/fitting.py`), so the first should fit whatever the expression is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Pattern = Literal[
    "full", "dense", "banded", "reading", "long documents", "long paths", "reading band", "pairs"
]
"""A row of tiles: all of them, with no mask; long; cut at both ends by the query's position; masked
by tensors that are read at every element, so of documents that are known to be long, or of paths
of documents that share prefixes; or both of these; or not cut, and with a tensor's entry for each
query and key."""


SHORT_ROW: Final = 1024
"""Keys of a row that is computed as a window is: measured without a bias, of softmaxes."""


LONG_DOCUMENT: Final = 3072
"""Keys of a document, of the mean, from which on rows are long: measured at 128 dimensions."""


LONG_PATH: Final = 1000
"""Likewise, of a path of documents that share prefixes; shorter ones were not measured."""


def as_long(pattern: Pattern, paths: bool) -> Pattern:
    """The pattern where documents, or `paths` of them, are known to be long."""
    longer: Pattern = "long paths" if paths else "long documents"
    return longer if pattern == "reading" else pattern


def as_short(pattern: Pattern) -> Pattern:
    """The pattern of a row of few keys, that of all keys or of a long row else.

    Few long programs leave multiprocessors waiting at the end; small tiles waste less of the last.
    """
    return "banded" if pattern in ("full", "dense") else pattern


@dataclass(frozen=True)
class Tile:
    """A configuration of the forward kernel.

    `block_q` queries by `block_kv` keys are computed at a time by `warps` warps, with `stages`
    tiles of keys and values in flight; `one_loop` for masked and full tiles alike, or two.
    """

    block_q: int
    block_kv: int
    warps: int
    stages: int
    one_loop: bool = False


LAST_RESORT: Final = Tile(16, 16, 4, 1)
"""The tile for masks of which Triton compiles no tile of a table: one stage, no pipelining."""

Machine = Literal["warpgroups", "warps", "small", "amd"]
"""The machine a tile must fit: how products are made, and the shared memory of a program.

Products of a warpgroup, and those whose sums lie in a memory of their own, take few registers;
those of single warps keep both sums and what they multiply in registers. A program may have 99 KiB
of shared memory on small ones, 163 on others of single warps, 227 of warpgroups.
"""


def machine(architecture: str) -> Machine:
    """The machine of an architecture of NVIDIA or AMD, "sm_90" or "gfx942" and the like."""
    if architecture.startswith("gfx"):
        return "amd"
    if architecture in ("sm_90", "sm_100", "sm_103"):
        return "warpgroups"
    return "warps" if architecture in ("sm_80", "sm_87") else "small"


# Measured on an H200 (sm_90, see docs/performance.md). Keys: (largest padded head dimension, bytes
# of an element).
_NVIDIA: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (64, 2): (Tile(64, 128, 4, 2, one_loop=True), Tile(64, 64, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (256, 2): (Tile(128, 64, 8, 2), Tile(64, 32, 4, 2), Tile(64, 32, 8, 2)),
    (64, 4): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (128, 4): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 2)),
    (256, 4): (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
}

# Few tiles a row: smaller ones waste fewer elements at both edges of the band, and one loop, whose
# code and registers are fewer, is the faster for being short.
_NVIDIA_BANDED: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    **_NVIDIA,
    (64, 2): (Tile(64, 64, 4, 2, one_loop=True),),
    (128, 2): (Tile(64, 64, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
}

# Documents may be shorter than any window.
_NVIDIA_READING: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    **_NVIDIA,
    (64, 2): (Tile(64, 64, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
    (128, 2): (Tile(64, 32, 4, 3, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
}

# Instead of the above where single warps multiply: compiled for sm_80, sm_86, sm_89 and sm_120, not
# measured; what fits into registers with what catalogued masks and biases need. All of these, and
# those that are left of the above, fit into small shared memory too.
_WARPS: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (256, 2): (Tile(64, 32, 8, 2), Tile(32, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 2), Tile(32, 16, 4, 1)),
}
_AMD: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (64, 2): (Tile(128, 64, 4, 1), Tile(64, 32, 4, 1)),
    (128, 2): (Tile(128, 64, 8, 1), Tile(64, 32, 4, 1)),
    (256, 2): (Tile(64, 32, 4, 1), Tile(32, 32, 4, 1)),
    (64, 4): (Tile(64, 32, 4, 1), Tile(32, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
    (256, 4): (Tile(32, 16, 4, 1), Tile(16, 16, 4, 1)),
}

# The interpreter runs every element in Python's time; small tiles keep its tests quick and still
# give several tiles to a row.
INTERPRETER: Final = (Tile(32, 16, 4, 1),)


def tiles_for(
    architecture: str, head_pad: int, element_bytes: int, pattern: Pattern
) -> tuple[Tile, ...]:
    """Candidates in the order to try.

    Args:
        architecture: "sm_90" and the like, "gfx942" and the like, or "interpreter".
        head_pad: the larger of the padded head dimensions of key and value, at most 256.
        element_bytes: 1, 2 or 4; what is of 1 byte is multiplied as of 2.
        pattern: what a row of the mask looks like.
    """
    if architecture == "interpreter":
        return INTERPRETER
    nvidia = {
        "full": _NVIDIA,
        "dense": _NVIDIA,
        "banded": _NVIDIA_BANDED,
        "reading": _NVIDIA_READING,
        "long documents": _NVIDIA_READING,
        "long paths": _NVIDIA_READING,
        "reading band": _NVIDIA_BANDED,
        "pairs": _NVIDIA_READING,
    }
    where = machine(architecture)
    table = _AMD if where == "amd" else nvidia[pattern]
    if where in ("warps", "small"):
        table = table | _WARPS
    size = next(limit for limit in (64, 128, 256) if head_pad <= limit)
    return table[size, max(element_bytes, 2)]


@dataclass(frozen=True)
class HopperTile:
    """A configuration of the warp-specialised forward kernel of sm_90.

    `consumers`, one to three groups of four warps, compute 64 queries each by `block_kv` keys at a
    time, with `stages` tiles of keys and as many of values in flight. Every thread starts with
    `registers`; then a consumer's threads hold `consumer_registers`, the producer's
    `producer_registers`. Of one consumer two or three programs share a multiprocessor: what one
    waits for the others hide. With `turns` the consumers multiply one after the other. `persistent`
    programs take rows of tiles in turn: that hides the start of short rows, but leaves long rows of
    unequal length unbalanced. With `overlap` a consumer weighs a tile while the one before is
    multiplied by its values; without, what it waits for is left to the others to hide.
    """

    consumers: int
    block_kv: int
    stages: int
    registers: int
    consumer_registers: int
    producer_registers: int
    turns: bool
    persistent: bool
    overlap: bool = False


_TWO_CONSUMERS: Final = HopperTile(2, 128, 2, 168, 240, 24, True, False)
_OVERLAPPED: Final = HopperTile(2, 128, 2, 168, 240, 24, True, False, overlap=True)
_THREE_CONSUMERS: Final = HopperTile(3, 128, 2, 128, 160, 32, True, False)
_THREE_NARROW: Final = HopperTile(3, 64, 3, 128, 160, 32, True, False)
_EQUAL_ROWS: Final = HopperTile(2, 128, 2, 168, 240, 24, False, True, overlap=True)
_WIDE_OVERLAPPED: Final = HopperTile(2, 64, 2, 168, 240, 24, True, False, overlap=True)
_WIDE_HEADS: Final = HopperTile(2, 64, 2, 168, 240, 24, True, False)
_SHORT_ROWS: Final = HopperTile(2, 128, 2, 168, 240, 24, True, True)
_SHORT_DOCUMENTS: Final = HopperTile(1, 64, 2, 128, 232, 24, False, True)
_THREE_PROGRAMS: Final = HopperTile(1, 64, 3, 80, 136, 24, False, False)

# Keys: (`size_of` rows, pattern, whether scores are biased). What is not listed is
# served by the plain kernel: biased rows of 64 dimensions that read nothing, which four warps a
# program balance better, and what would spill registers. A tier for sm_100 would stand here.
_HOPPER: Final[dict[tuple[int, Pattern, bool], HopperTile]] = {
    (64, "full", False): _THREE_CONSUMERS,
    (64, "dense", False): _THREE_CONSUMERS,
    (64, "banded", False): _THREE_PROGRAMS,
    (64, "reading", False): _THREE_PROGRAMS,
    (64, "reading", True): _THREE_PROGRAMS,
    (64, "long documents", False): _THREE_PROGRAMS,
    (64, "long documents", True): _THREE_PROGRAMS,
    (64, "long paths", False): _THREE_PROGRAMS,
    (64, "long paths", True): _THREE_PROGRAMS,
    (64, "reading band", False): _THREE_PROGRAMS,
    (64, "reading band", True): _THREE_PROGRAMS,
    (64, "pairs", False): _THREE_PROGRAMS,
    (64, "pairs", True): _THREE_PROGRAMS,
    (128, "full", False): _EQUAL_ROWS,
    (128, "full", True): _TWO_CONSUMERS,
    (128, "dense", False): _OVERLAPPED,
    (128, "dense", True): _TWO_CONSUMERS,
    (128, "banded", False): _SHORT_ROWS,
    (128, "banded", True): _SHORT_DOCUMENTS,
    (128, "reading", False): _SHORT_DOCUMENTS,
    (128, "reading", True): _SHORT_DOCUMENTS,
    (128, "long documents", False): _OVERLAPPED,
    (128, "long documents", True): _SHORT_DOCUMENTS,
    (128, "long paths", False): _EQUAL_ROWS,
    (128, "long paths", True): _SHORT_DOCUMENTS,
    (128, "reading band", False): _SHORT_DOCUMENTS,
    (128, "reading band", True): _SHORT_DOCUMENTS,
    (128, "pairs", False): _THREE_NARROW,
    (128, "pairs", True): _TWO_CONSUMERS,
    (192, "full", False): _OVERLAPPED,
    (192, "dense", False): _OVERLAPPED,
    (192, "banded", False): _OVERLAPPED,
    (256, "full", False): _WIDE_OVERLAPPED,
    (256, "dense", False): _WIDE_OVERLAPPED,
    (256, "banded", False): _WIDE_HEADS,
}
# Of weights that have a formula, which need neither maximum nor correction, biased or not.
_HOPPER_WEIGHTED: Final[dict[tuple[int, Pattern], HopperTile]] = {
    (128, "full"): _THREE_NARROW,
    (128, "dense"): _THREE_NARROW,
    (128, "banded"): _SHORT_ROWS,
    (128, "reading"): _SHORT_DOCUMENTS,
    (128, "long documents"): _SHORT_DOCUMENTS,
    (128, "long paths"): _SHORT_DOCUMENTS,
    (128, "reading band"): _SHORT_DOCUMENTS,
    (128, "pairs"): _SHORT_DOCUMENTS,
}

# Of float8 inputs. Beside the running output stands that of a tile, so registers are few.
_FLOAT8_LONG: Final = HopperTile(2, 128, 3, 168, 240, 24, True, False)
_FLOAT8_NARROW: Final = HopperTile(3, 128, 3, 128, 160, 32, True, False)
_FLOAT8_SHORT: Final = HopperTile(1, 128, 2, 128, 232, 24, False, True)
_HOPPER_FLOAT8: Final[dict[tuple[int, Pattern, bool], HopperTile]] = {
    (64, "full", False): _FLOAT8_NARROW,
    (64, "full", True): _THREE_PROGRAMS,
    (64, "dense", False): _FLOAT8_NARROW,
    (64, "dense", True): _THREE_PROGRAMS,
    (64, "banded", False): _THREE_PROGRAMS,
    (64, "banded", True): _THREE_PROGRAMS,
    (64, "reading", False): _THREE_PROGRAMS,
    (64, "reading", True): _THREE_PROGRAMS,
    (64, "long documents", False): _THREE_PROGRAMS,
    (64, "long documents", True): _THREE_PROGRAMS,
    (64, "long paths", False): _THREE_PROGRAMS,
    (64, "long paths", True): _THREE_PROGRAMS,
    (64, "reading band", False): _THREE_PROGRAMS,
    (64, "reading band", True): _THREE_PROGRAMS,
    (64, "pairs", False): _THREE_PROGRAMS,
    (64, "pairs", True): _THREE_PROGRAMS,
    (128, "full", False): _FLOAT8_LONG,
    (128, "full", True): _FLOAT8_SHORT,
    (128, "dense", False): _FLOAT8_LONG,
    (128, "dense", True): _FLOAT8_SHORT,
    (128, "banded", False): _FLOAT8_SHORT,
    (128, "banded", True): _FLOAT8_SHORT,
    (128, "reading", False): _SHORT_DOCUMENTS,
    (128, "reading", True): _SHORT_DOCUMENTS,
    (128, "long documents", False): _SHORT_DOCUMENTS,
    (128, "long documents", True): _SHORT_DOCUMENTS,
    (128, "long paths", False): _SHORT_DOCUMENTS,
    (128, "long paths", True): _SHORT_DOCUMENTS,
    (128, "reading band", False): _SHORT_DOCUMENTS,
    (128, "reading band", True): _SHORT_DOCUMENTS,
    (128, "pairs", False): _SHORT_DOCUMENTS,
    (128, "pairs", True): _SHORT_DOCUMENTS,
}


def size_of(rows: tuple[int, int]) -> int:
    """What tables of warp-specialised kernels call keys and values of so many dimensions, padded as
    in shared memory: the more up to 128, 192 for 192 and up to 128 (multi-head latent attention
    trains with them), else 256."""
    if max(rows) <= 128:
        return max(rows)
    return 192 if rows[0] == 192 and rows[1] <= 128 else 256


def hopper_tile_for(
    architecture: str,
    rows: tuple[int, int],
    element_bytes: int,
    pattern: Pattern,
    *,
    biased: bool,
    weighted: bool = False,
) -> HopperTile | None:
    """The configuration of the warp-specialised kernel, or None where the plain one serves.

    Arguments as of `tiles_for` and `size_of`; `biased` says whether the expression changes scores,
    `weighted` whether what comes of it is the weight itself.
    """
    if architecture != "sm_90" or element_bytes > 2:
        return None
    size = size_of(rows)
    if element_bytes == 1:
        return None if weighted else _HOPPER_FLOAT8.get((size, pattern, biased))
    if weighted:
        return _HOPPER_WEIGHTED.get((size, pattern))
    return _HOPPER.get((size, pattern, biased))
