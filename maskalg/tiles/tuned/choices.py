"""Choices: the tile tuned for each key, and its time compared with the table's tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

from ..shapes import HopperBackwardTile, HopperTile, Tile

Kernel = Literal["forward", "queries", "keys"]
"""The forward kernel, and those of the gradients of queries, and of keys and values."""

Configuration: TypeAlias = Tile | HopperTile | HopperBackwardTile
"""A tile of the plain tier, or of the warp-specialised kernels of sm_90."""

KERNELS: Final[tuple[Kernel, ...]] = get_args(Kernel)
_SIDES: Final = (16, 32, 64, 128, 256)
_HOPPER_SIDES: Final = (32, 64, 128, 256)
_ROWS: Final = 64  # of a consumer
_THREADS: Final = 128  # of a consumer, and as many are counted for the producer
_REGISTERS: Final = 65536  # of a multiprocessor


@dataclass(frozen=True)
class Key:
    """The key of a tile's choice on one device; see `maskalg.tiles.forward.tiles_for`.

    Attributes:
        kernel: the kernel.
        size: size of the heads; see `maskalg.tiles.shapes.size_of`.
        element_bytes: 2 or 4.
        pattern: the name of the pattern of the mask's rows.
        biased: whether the expression changes scores.
    """

    kernel: Kernel
    size: int
    element_bytes: int
    pattern: str
    biased: bool

    def __str__(self) -> str:
        bias = ", biased" if self.biased else ""
        return f"{self.kernel} D{self.size} {8 * self.element_bytes} bits {self.pattern}{bias}"


@dataclass(frozen=True)
class Choice:
    """A tile that was faster than the table's.

    Attributes:
        tile: the tile to launch.
        instead_of: the table's tile, in words.
        ratio: time of the table's tile over that of `tile`, median of paired rounds.
        spread: the smallest and the largest ratio of a round.
        measured: when, ISO 8601 in UTC.
    """

    tile: Configuration
    instead_of: str
    ratio: float
    spread: tuple[float, float]
    measured: str


@dataclass(frozen=True, eq=False)
class Choices:
    """The choices of one device; compared by identity, since they are keys of remembered plans."""

    by_key: Mapping[Key, Choice] = field(default_factory=lambda: MappingProxyType({}))

    def tile(self, key: Key) -> Configuration | None:
        """The tile chosen for `key`, or None where the table's stays."""
        choice = self.by_key.get(key)
        return None if choice is None else choice.tile


NOTHING_TUNED: Final = Choices()


def text(tile: Configuration) -> str:
    """A tile in a few words."""
    if isinstance(tile, Tile):
        loops = ", one loop" if tile.one_loop else ""
        return f"{tile.block_q}x{tile.block_kv}, {tile.warps} warps, {tile.stages} stages{loops}"
    if isinstance(tile, HopperTile):
        words = [
            f"Gluon {tile.consumers}x64x{tile.block_kv}",
            f"{tile.stages} stages",
            f"{tile.consumer_registers}/{tile.producer_registers} of {tile.registers} registers",
            *(["turns"] if tile.turns else []),
            *(["persistent"] if tile.persistent else []),
            *(["overlap"] if tile.overlap else []),
            *([] if tile.held else ["queries in memory"]),
        ]
        return ", ".join(words)
    words = [f"Gluon {tile.consumers}x64x{tile.block}", f"{tile.stages} stages"]
    words += ["overlap"] if tile.overlap else []
    words += ["persistent"] if tile.persistent else []
    words += ["anew"] if tile.anew else []
    words += ["one ring"] if tile.one_ring else []
    words += ["divided"] if tile.divided else []
    return ", ".join(words)


def legal(key: Key, tile: Configuration) -> bool:
    """Whether the kernel of `key` can be built with `tile`, on a device with room for it.

    A consumer that asks for more registers than there are waits for ever: such a tile must never
    reach the device.
    """
    if isinstance(tile, Tile):
        sides = tile.block_q in _SIDES and tile.block_kv in _SIDES
        return sides and tile.warps in (1, 2, 4, 8, 16) and 1 <= tile.stages <= 8
    if key.element_bytes != 2 or not 2 <= tile.stages <= 8:
        return False
    if isinstance(tile, HopperBackwardTile):
        return (
            key.kernel != "forward"
            and key.size >= 64
            and tile.block in _HOPPER_SIDES
            and (_legal_of_keys if key.kernel == "keys" else _legal_of_queries)(key, tile)
            and tile.consumers in (1, 2)
        )
    groups = tile.consumers + 1
    dealt = tile.consumers * tile.consumer_registers + tile.producer_registers
    return (
        key.kernel == "forward"
        and key.size >= 64
        and tile.consumers in (1, 2, 3)
        and not (tile.turns and tile.consumers == 1)
        and tile.block_kv in _HOPPER_SIDES
        and all(n % 8 == 0 for n in (tile.consumer_registers, tile.producer_registers))
        and 24 <= tile.producer_registers <= tile.consumer_registers <= 248
        and dealt <= groups * tile.registers
        and groups * tile.registers * _THREADS <= _REGISTERS
    )


def _legal_of_keys(key: Key, tile: HopperBackwardTile) -> bool:
    """Two sums of 256 dimensions exceed a consumer's registers. A divided tile needs two consumers,
    and its programs are not persistent."""
    if tile.divided:
        free = not (tile.persistent or tile.anew)
        return free and tile.consumers == 2 and tile.block == _ROWS and not tile.one_ring
    return key.size < 256 and not (tile.overlap or tile.one_ring)


def _legal_of_queries(key: Key, tile: HopperBackwardTile) -> bool:
    """In one ring of two stages, with overlap, the next keys and values would wait for the stage of
    the keys that wait for them. One ring needs equally long rows of keys and values."""
    refused = tile.one_ring and ((tile.overlap and tile.stages < 3) or key.size == 192)
    return not (refused or tile.anew or tile.divided)
