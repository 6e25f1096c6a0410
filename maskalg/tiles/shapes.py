"""Tile shapes: configurations of each kernel, and the machines they must fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple


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


_LAST: Final = (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1))
"""The smallest tiles: one stage, no pipelining."""


def in_turn(tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """The tiles of a table, if any, and behind them those to try where Triton compiles none of
    them, or all of them spill.

    The last of the table first, by eight warps: their threads hold half as much as those of four,
    and the tile is no smaller.
    """
    if not tiles:
        return ()
    return tuple(dict.fromkeys((*tiles, replace(tiles[-1], warps=8), *_LAST)))


# The interpreter runs every element in Python's time; small tiles keep its tests quick and still
# give several tiles to a row.
INTERPRETER: Final = (Tile(32, 16, 4, 1),)


@dataclass(frozen=True)
class HopperTile:
    """A configuration of the warp-specialised forward kernel of sm_90.

    `consumers`, one to three groups of four warps, compute 64 queries each by `block_kv` keys at a
    time, with `stages` tiles of keys and as many of values in flight. Every thread starts with
    `registers`; then a consumer's threads hold `consumer_registers`, the producer's
    `producer_registers`. Of one consumer two or three programs share a multiprocessor: what one
    waits for the others hide. With `turns` the consumers multiply one after the other. `persistent`
    programs draw rows of tiles one after another: a row's loads begin while the one before is
    computed. With `overlap` a consumer weighs a tile while the one before is multiplied by its
    values; without, what it waits for is left to the others to hide.
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


@dataclass(frozen=True)
class HopperBackwardTile:
    """A configuration of a warp-specialised gradient kernel of sm_90.

    `consumers`, one or two groups of four warps, compute 64 keys (or queries) each by `block`
    queries (or keys) at a time, with `stages` tiles in flight. Of one consumer two programs share a
    multiprocessor, if their tiles leave room: what one waits for the other hides. With `overlap`,
    of queries alone, the last product of a tile is made while the next tile's scores are weighed;
    it takes a stage more to hide loads. `persistent` programs draw rows one after another and load
    the next row's keys (or queries) ahead of time, which takes the memory of two stages. With
    `anew`, of keys alone, what follows from the place of what is held is computed at each tile, not
    kept in registers; so it always is with a bias that is more than added. In `one_ring`, of
    queries alone and for equal padded dimensions, keys and values share the stages. `divided`, of
    keys alone, two consumers compute 64 keys together, one dV and the other dK.
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
        """This and, behind it, the one to try where it spills: of half as many queries (or keys) at
        a time, whose scores take half the registers, and twice as many stages for the same memory.
        """
        if self.divided:
            return (self,)
        return self, replace(self, block=self.block // 2, stages=2 * self.stages)


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


SIZES: Final = (16, 32, 64, 96, 128, 192, 256)
"""The sizes of heads that tiles are chosen by: see `size_of`."""


def size_of(dims: tuple[int, int]) -> int:
    """The size of heads of so many dimensions of key and value: the larger up to the next of
    `SIZES`; 192 is that of keys with values of up to 128 (multi-head latent attention trains with
    them), and wide values are of 256."""
    size = next(size for size in SIZES if max(dims) <= size)
    return 256 if size == 192 and dims[1] > 128 else size


def dims_of(size: int) -> tuple[int, int]:
    """The dimensions of key and value of the largest heads of a size."""
    return size, 128 if size == 192 else size
