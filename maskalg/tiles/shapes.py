"""Tile shapes: configurations of each kernel, and the machines they must fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple


@dataclass(frozen=True)
class Tile:
    """A configuration of the forward kernel.

    `block_q` queries by `block_kv` keys are computed at a time by `warps` warps, with `stages`
    tiles of keys and values in flight. With `one_loop`, one loop computes masked and full tiles;
    without, two do.
    """

    block_q: int
    block_kv: int
    warps: int
    stages: int
    one_loop: bool = False


_LAST: Final = (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1))
"""The smallest tiles: one stage, no pipelining."""


def in_turn(tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """The tiles of a table, if any, then those to try if Triton compiles none of them, or if all of
    them spill.

    The first to try is the last of the table, with eight warps: their threads hold half as much as
    those of four, and the tile is no smaller.
    """
    if not tiles:
        return ()
    return tuple(dict.fromkeys((*tiles, replace(tiles[-1], warps=8), *_LAST)))


# The interpreter runs at the speed of Python; small tiles keep its tests quick and still give
# several tiles to a row.
INTERPRETER: Final = (Tile(32, 16, 4, 1),)


@dataclass(frozen=True)
class HopperTile:
    """A configuration of the warp-specialised forward kernel of sm_90.

    `consumers`, one to three groups of four warps, compute 64 queries each by `block_kv` keys at a
    time, with `stages` tiles of keys and as many of values in flight. Every thread starts with
    `registers`; then a consumer's threads hold `consumer_registers`, the producer's
    `producer_registers`. With one consumer, two or three programs share a multiprocessor and hide
    each other's waits. With `turns` the consumers multiply one after the other. `persistent`
    programs draw rows of tiles one after another: a row's loads begin while the row before is
    computed. With `overlap` a consumer computes the weights of a tile while the tile before is
    multiplied by its values; without, it waits, and other consumers or programs hide that. With
    `held`, one or two consumers whose rows have 128 or 256 dimensions multiply 128 dimensions of
    their queries from registers; other rows never do.
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
    held: bool = True


@dataclass(frozen=True)
class HopperBackwardTile:
    """A configuration of a warp-specialised gradient kernel of sm_90.

    `consumers`, one or two groups of four warps, compute 64 keys (or queries) each by `block`
    queries (or keys) at a time, with `stages` tiles in flight. With one consumer, two programs
    share a multiprocessor, if their tiles leave room, and hide each other's waits. With `overlap`
    (queries only) the last product of a tile is made while the weights of the next tile are
    computed; it takes one stage more to hide loads. `persistent` programs draw rows one after
    another and load the next row's keys (or queries) ahead of time, which takes the memory of two
    stages. With `anew` (keys only) the values that depend on the positions of a program's keys are
    computed again for each tile, not kept in registers; a bias that is more than added always does
    so. With `one_ring` (queries only, for equal padded dimensions) keys and values share the
    stages. With `divided` (keys only) two consumers compute the same 64 keys, one dV and the other
    dK.
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

    def in_turn(self) -> tuple[HopperBackwardTile, ...]:
        """This tile, then the one to try if it spills: with half as many queries (or keys) at a
        time, whose scores take half the registers, and twice as many stages in the same memory.
        """
        if self.divided:
            return (self,)
        return self, replace(self, block=self.block // 2, stages=2 * self.stages)


class Least(NamedTuple):
    """The least work for which one kernel computes all gradients, in tiles of 128.

    Attributes:
        kv_keys: tiles of keys, in all key heads. With fewer, `pairs` is multiplied by the padded
            head dimension / 32, and bands always run in two kernels.
        keys: tiles of keys, in all query heads. With fewer, programs wait for one another longer
            than one kernel saves.
        pairs: tiles of pairs of queries and keys, in all heads. With fewer, the kernels that run
            before and after take longer than one kernel saves.
        queries: tiles of queries, unless there are as many as tiles of keys: only one program at a
            time adds to a tile of queries.
        band: mean number of tiles of keys in each interval of a row, where rows are cut at both
            ends. With fewer, the work around each interval takes longer than one kernel saves.
        document: likewise, the mean number of tiles in a document.
    """

    kv_keys: int
    keys: int
    pairs: int
    queries: int
    band: float = 0
    document: float = 0


Machine = Literal["warpgroups", "warps", "small", "amd"]
"""The machine a tile must fit: how products are made, and the shared memory of a program.

Products of a warpgroup, and those whose sums lie in a memory of their own, take few registers;
those of single warps keep both sums and what they multiply in registers. A program may have 99 KiB
of shared memory on small ones, 163 on others of single warps, 227 of warpgroups.
"""


def machine(architecture: str) -> Machine:
    """The machine of an architecture of NVIDIA or AMD, such as "sm_90" or "gfx942"."""
    if architecture.startswith("gfx"):
        return "amd"
    if architecture in ("sm_90", "sm_100", "sm_103"):
        return "warpgroups"
    return "warps" if architecture in ("sm_80", "sm_87") else "small"


SIZES: Final = (16, 32, 64, 96, 128, 160, 192, 256)
"""The sizes of heads that tiles are chosen by: see `size_of`."""


def size_of(dims: tuple[int, int]) -> int:
    """The size of heads with these dimensions of key and value: the larger one, rounded up to the
    next of `SIZES`. Keys of 129 to 192 take size 192 with values of up to 128 (as in multi-head
    latent attention); with wider values size 160 or 256."""
    size = next(size for size in SIZES if max(dims) <= size)
    if size in (160, 192) and dims[1] <= 128:
        return 192
    return 256 if size == 192 else size


def dims_of(size: int) -> tuple[int, int]:
    """The dimensions of key and value of the largest heads of a size."""
    return size, 128 if size == 192 else size
