"""Tile shapes of the gradients: tables as of `tiles`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from .forward import INTERPRETER, LONG_DOCUMENT, Pattern, Tile, machine, size_of

_LONG: Final[tuple[Pattern, ...]] = ("full", "dense", "pairs")

# Of the gradients: block_q x block_kv. dQ loops over keys, dK and dV over queries.
_BACKWARD_QUERIES: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (64, 2): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    (256, 2): (Tile(64, 32, 4, 2), Tile(32, 32, 4, 1)),
    (64, 4): (Tile(32, 32, 4, 2), Tile(32, 16, 4, 1)),
    (128, 4): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
    (256, 4): (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1)),
}
_BACKWARD_KEYS: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (64, 2): (Tile(128, 64, 4, 2, one_loop=True), Tile(64, 64, 4, 2), Tile(32, 64, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(32, 64, 4, 2)),
    (256, 2): (Tile(32, 64, 8, 1), Tile(32, 32, 8, 1)),
    (64, 4): (Tile(32, 32, 4, 2), Tile(16, 32, 4, 1)),
    (128, 4): (Tile(32, 32, 8, 1), Tile(16, 32, 4, 1)),
    (256, 4): (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1)),
}
# Few tiles a row, most of them masked: fewer queries at a time waste fewer elements, and leave
# registers for what the mask reads.
_BACKWARD_KEYS_SPARSE: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    **_BACKWARD_KEYS,
    (64, 2): (Tile(32, 64, 4, 2), Tile(32, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(32, 64, 4, 2, one_loop=True)),
}
_BACKWARD_QUERIES_SPARSE: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    **_BACKWARD_QUERIES,
    (64, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
    (128, 2): (Tile(64, 64, 4, 2, one_loop=True), Tile(64, 32, 4, 2, one_loop=True)),
}
# Instead of the above where single warps multiply, and where shared memory is small too; as in
# `tiles`. Eight warps hold the sums of 64 keys, and what is multiplied, in half the registers.
_WARPS_QUERIES: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (256, 2): (Tile(64, 32, 8, 2), Tile(32, 32, 4, 1)),
}
_WARPS_KEYS: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (64, 2): (Tile(64, 64, 4, 2), Tile(32, 64, 4, 2), Tile(32, 32, 4, 2)),
    (128, 2): (Tile(64, 64, 8, 2), Tile(32, 64, 8, 2)),
    (256, 2): (Tile(32, 64, 8, 1), Tile(32, 32, 8, 1)),
}
_SMALL_QUERIES: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    (256, 2): (Tile(32, 32, 4, 1), Tile(32, 16, 4, 1)),
}
_SMALL_KEYS: Final[dict[tuple[int, int], tuple[Tile, ...]]] = {
    **_WARPS_KEYS,
    (256, 2): (Tile(32, 32, 8, 1), Tile(16, 32, 4, 1)),
}


def backward_tiles_for(
    architecture: str,
    head_pad: int,
    element_bytes: int,
    pattern: Pattern,
    *,
    of: Literal["queries", "keys"],
) -> tuple[Tile, ...]:
    """Candidates for the gradients of queries, or of keys and values; arguments as above."""
    if architecture == "interpreter":
        return INTERPRETER
    where = machine(architecture)
    dense = pattern in _LONG or where == "amd"
    if of == "queries":
        table = _BACKWARD_QUERIES if dense else _BACKWARD_QUERIES_SPARSE
        instead = {"warps": _WARPS_QUERIES, "small": _SMALL_QUERIES}
    else:
        table = _BACKWARD_KEYS if dense else _BACKWARD_KEYS_SPARSE
        instead = {"warps": _WARPS_KEYS, "small": _SMALL_KEYS}
    size = next(limit for limit in (64, 128, 256) if head_pad <= limit)
    at = (size, element_bytes)
    if where in instead and (dense or at != (64, 2)):
        return instead[where].get(at, table[at])
    return table[at]


@dataclass(frozen=True)
class HopperBackwardTile:
    """A configuration of a warp-specialised gradient kernel of sm_90.

    `consumers`, one or two groups of four warps, compute 64 keys (or queries) each by `block`
    queries (or keys) at a time, with `stages` tiles in flight. Of one consumer two programs share a
    multiprocessor, if their tiles leave room: what one waits for the other hides. With `overlap`,
    of queries alone, the last product of a tile is made while the next tile's scores are weighed;
    it takes a stage more to hide loads. `persistent` programs take rows in turn and load the next
    row's keys (or queries) ahead of time, which takes the memory of two stages. With `anew`, of
    keys alone, what follows from the place of what is held is computed at each tile, not kept in
    registers; so it always is with a bias that is more than added. In `one_ring`, of queries alone
    and for equal padded dimensions, keys and values share the stages. `divided`, of keys alone, two
    consumers compute 64 keys together, one dV and the other dK.
    """

    block: int
    stages: int
    overlap: bool = False
    persistent: bool = False
    consumers: int = 2
    anew: bool = False
    one_ring: bool = False
    divided: bool = False

    @property
    def rows(self) -> int:
        """Keys (or queries) of a program."""
        return 64 if self.divided else 64 * self.consumers


_SHORT_QUERIES: Final = HopperBackwardTile(64, 3, overlap=True, persistent=True, consumers=1)

_QUERIES_OF_256: Final = HopperBackwardTile(64, 3, one_ring=True)
_KEYS_OF_256: Final = HopperBackwardTile(64, 2, divided=True)
_QUERIES_OF_192: Final = HopperBackwardTile(64, 3)
_KEYS_OF_192: Final = HopperBackwardTile(64, 3, divided=True)

# Keys: (gradients of what, `size_of` rows, pattern, whether scores are biased).
# Measured on an H200; what is not listed is faster in the plain kernels, or was not measured.
_HOPPER_BACKWARD: Final[
    dict[tuple[Literal["queries", "keys"], int, Pattern, bool], HopperBackwardTile]
] = {
    ("keys", 64, "dense", False): HopperBackwardTile(64, 3, consumers=1),
    ("keys", 64, "dense", True): HopperBackwardTile(64, 3),
    ("keys", 64, "banded", False): HopperBackwardTile(64, 3, consumers=1),
    ("keys", 64, "banded", True): HopperBackwardTile(64, 3, consumers=1),
    ("keys", 64, "reading", False): HopperBackwardTile(64, 3, persistent=True, consumers=1),
    ("keys", 64, "reading", True): HopperBackwardTile(64, 3, consumers=1),
    ("keys", 64, "reading band", False): HopperBackwardTile(64, 3, persistent=True, consumers=1),
    ("keys", 64, "reading band", True): HopperBackwardTile(64, 3, consumers=1),
    ("keys", 128, "dense", False): HopperBackwardTile(64, 2),
    ("keys", 128, "dense", True): HopperBackwardTile(64, 2),
    ("keys", 128, "banded", False): HopperBackwardTile(64, 2, consumers=1),
    ("keys", 128, "banded", True): HopperBackwardTile(64, 2, consumers=1),
    ("keys", 128, "reading", False): HopperBackwardTile(64, 2, consumers=1, anew=True),
    ("keys", 128, "reading", True): HopperBackwardTile(64, 2, consumers=1, anew=True),
    ("keys", 128, "reading band", False): HopperBackwardTile(64, 2, consumers=1, anew=True),
    ("keys", 128, "reading band", True): HopperBackwardTile(64, 2, consumers=1, anew=True),
    ("queries", 128, "dense", False): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "dense", True): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "banded", False): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "banded", True): HopperBackwardTile(64, 2, consumers=1),
    ("queries", 128, "reading", False): HopperBackwardTile(64, 2, consumers=1),
    ("queries", 128, "reading", True): HopperBackwardTile(64, 2, consumers=1),
    ("queries", 128, "reading band", False): HopperBackwardTile(64, 2, consumers=1),
    ("queries", 128, "reading band", True): HopperBackwardTile(64, 2, consumers=1),
    ("queries", 64, "banded", True): _SHORT_QUERIES,
    ("queries", 64, "reading", False): _SHORT_QUERIES,
    ("queries", 64, "reading", True): _SHORT_QUERIES,
    ("queries", 64, "reading band", False): _SHORT_QUERIES,
    ("queries", 64, "reading band", True): _SHORT_QUERIES,
    ("queries", 192, "dense", False): _QUERIES_OF_192,
    ("queries", 192, "dense", True): _QUERIES_OF_192,
    ("queries", 192, "banded", False): _QUERIES_OF_192,
    ("queries", 192, "banded", True): _QUERIES_OF_192,
    ("queries", 192, "reading", False): _QUERIES_OF_192,
    ("queries", 192, "reading", True): _QUERIES_OF_192,
    ("queries", 192, "reading band", False): _QUERIES_OF_192,
    ("queries", 192, "reading band", True): _QUERIES_OF_192,
    ("queries", 256, "dense", False): _QUERIES_OF_256,
    ("queries", 256, "dense", True): _QUERIES_OF_256,
    ("queries", 256, "banded", False): _QUERIES_OF_256,
    ("queries", 256, "banded", True): _QUERIES_OF_256,
    ("queries", 256, "reading", False): _QUERIES_OF_256,
    ("queries", 256, "reading", True): _QUERIES_OF_256,
    ("queries", 256, "reading band", False): _QUERIES_OF_256,
    ("queries", 256, "reading band", True): _QUERIES_OF_256,
    ("keys", 192, "dense", False): _KEYS_OF_192,
    ("keys", 192, "dense", True): _KEYS_OF_192,
    ("keys", 192, "banded", False): _KEYS_OF_192,
    ("keys", 192, "banded", True): _KEYS_OF_192,
    ("keys", 192, "reading", False): _KEYS_OF_192,
    ("keys", 192, "reading", True): _KEYS_OF_192,
    ("keys", 192, "reading band", False): _KEYS_OF_192,
    ("keys", 192, "reading band", True): _KEYS_OF_192,
    ("keys", 256, "dense", False): _KEYS_OF_256,
    ("keys", 256, "dense", True): _KEYS_OF_256,
    ("keys", 256, "banded", False): _KEYS_OF_256,
    ("keys", 256, "banded", True): _KEYS_OF_256,
    ("keys", 256, "reading", False): _KEYS_OF_256,
    ("keys", 256, "reading", True): _KEYS_OF_256,
    ("keys", 256, "reading band", False): _KEYS_OF_256,
    ("keys", 256, "reading band", True): _KEYS_OF_256,
}
_HOPPER_BACKWARD_WEIGHTED: Final[
    dict[tuple[Literal["queries", "keys"], int, Pattern], HopperBackwardTile]
] = {
    ("keys", 128, "dense"): HopperBackwardTile(64, 2),
    ("keys", 128, "banded"): HopperBackwardTile(64, 2),
    ("queries", 128, "dense"): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "banded"): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "reading"): HopperBackwardTile(64, 4, overlap=True),
    ("queries", 128, "reading band"): HopperBackwardTile(64, 4, overlap=True),
}


def hopper_backward_tile_for(
    architecture: str,
    rows: tuple[int, int],
    element_bytes: int,
    pattern: Pattern,
    *,
    of: Literal["queries", "keys"],
    biased: bool,
    weighted: bool = False,
) -> HopperBackwardTile | None:
    """The configuration of a warp-specialised gradient kernel, or None where the plain one serves.

    Arguments as of `backward_tiles_for` and `hopper_tile_for`; `rows` are the dimensions of key and
    value, padded as in shared memory.
    """
    size = size_of(rows)
    # Two wide dimensions that differ otherwise were not measured.
    served = size < 256 or rows[0] == rows[1]
    if architecture != "sm_90" or element_bytes != 2 or not served:
        return None
    listed: Pattern = "dense" if pattern in _LONG else pattern
    if listed in ("long documents", "long paths"):
        listed = "reading"
    if weighted:
        return _HOPPER_BACKWARD_WEIGHTED.get((of, size, listed))
    return _HOPPER_BACKWARD.get((of, size, listed, biased))


class Least(NamedTuple):
    """The least work for which one kernel computes all gradients, in tiles of 128.

    Attributes:
        kv_keys: tiles of keys, of all heads of keys; fewer were not measured.
        keys: of all heads of queries. With fewer, programs wait for one another longer than one
            saves.
        pairs: tiles of queries and keys, of all heads. With fewer, the kernels around the one take
            longer than it saves.
        queries: tiles of queries, unless there are as many as of keys. To each tile one program
            adds at a time.
        band: tiles of keys in each interval of a row, where rows are cut at both ends: a mean. Of
            few, what is computed around them takes longer than one kernel saves.
        document: likewise, tiles of a document.
    """

    kv_keys: int
    keys: int
    pairs: int
    queries: int
    band: float = 0
    document: float = 0


# Of softmax rows whose bias, if any, is only added to the score: a formula needs the score, which
# is not made by itself, and its derivative too many registers. Biases of pairs are faster in two
# kernels at 64 dimensions, where one reads entry by entry what that of dQ reads by lines. Of each
# pattern the padded head dimensions.
_IN_ONE_PASS: Final[dict[Pattern, tuple[int, ...]]] = {
    "full": (64, 128),
    "dense": (64, 128),
    "banded": (64, 128),
    "reading": (64, 128),
    "pairs": (128,),
}
_LEAST: Final = Least(kv_keys=512, keys=512, pairs=2**14, queries=32)
# A window of 1024 keys has 7.9 tiles in rows of 4096, and 8.4 in rows of 8192.
_LEAST_OF: Final[dict[Pattern, Least]] = {
    "banded": _LEAST._replace(keys=1024, pairs=2**15, band=7.5),
    "reading": _LEAST._replace(keys=1024, pairs=2**15, document=LONG_DOCUMENT / 128),
}


def one_pass_for(
    architecture: str,
    head_pad: int,
    element_bytes: int,
    pattern: Pattern,
    *,
    additive: bool,
    weighted: bool = False,
) -> Least | None:
    """From what sizes on one kernel computes all gradients, None where none does.

    Lengths and the width of a band decide which serves; no kernel is compiled for their values.

    The mask must be one for all batch entries and heads. Arguments as above; `additive` says
    whether a bias, if any, is only added to the score.
    """
    served = architecture == "sm_90" and element_bytes == 2 and additive and not weighted
    if not served or head_pad not in _IN_ONE_PASS.get(pattern, ()):
        return None
    return _LEAST_OF.get(pattern, _LEAST)
