"""Candidates: the tables' tiles to start from, and tiles one step away from one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from ..backward import backward_tiles_for, hopper_backward_tile_for
from ..forward import hopper_tile_for, tiles_for
from ..patterns import PATTERNS
from ..shapes import HopperBackwardTile, HopperTile, Tile, dims_of
from .choices import Configuration, Key, legal

Change = dict[str, Any]
"""Fields in which a neighbour differs from a tile."""

_BLOCKS: Final = (32, 256)
_HOPPER_BLOCKS: Final = (64, 128)  # 256 columns of scores leave a consumer no registers
_WARPS: Final = (4, 8)
_STAGES: Final = (2, 4)
_HOPPER_STAGES: Final = (2, 5)
_HOPPER_SHARED: Final = 227 * 1024  # bytes of a multiprocessor

_REGISTERS: Final = {
    1: ((128, 232, 24), (80, 136, 24)),
    2: ((168, 240, 24), (168, 232, 40)),
    3: ((128, 160, 32), (128, 152, 56)),
}
"""Registers by number of consumers: at the start, then in a consumer's and a producer's thread.

Masks that read tensors to find their runs need more for the producer. With one consumer, two or
three programs run at once on a multiprocessor.
"""


def table_tiles(architecture: str, key: Key) -> tuple[Configuration, ...]:
    """The tables' tiles for `key`, in order, on inputs that every tier serves."""
    at = (architecture, key.size, key.element_bytes, key.pattern)
    hopper: HopperTile | HopperBackwardTile | None
    if key.kernel == "forward":
        hopper = hopper_tile_for(*at, biased=key.biased)
        plain = tiles_for(*at)
    else:
        hopper = hopper_backward_tile_for(*at, of=key.kernel, biased=key.biased)
        plain = backward_tiles_for(*at, of=key.kernel)
    return plain if hopper is None else (hopper, *plain)


def first_candidates(architecture: str, key: Key) -> tuple[Configuration, ...]:
    """The tiles a search starts from: those of the tables for `key`, neighbours of the first of
    these, the first tiles of the tables for other masks, and in the warp-specialised kernels for
    other heads.
    """
    own = table_tiles(architecture, key)
    others = [
        tile
        for size in dict.fromkeys((key.size, 64, 128))
        for pattern in PATTERNS
        for biased in (False, True)
        for tile in _firsts(
            table_tiles(architecture, replace(key, size=size, pattern=pattern, biased=biased)),
            plain=size == key.size,
        )
    ]
    return _kept(architecture, key, (*own, *neighbours(architecture, key, own[0]), *others))


def neighbours(architecture: str, key: Key, tile: Configuration) -> tuple[Configuration, ...]:
    """The legal tiles that differ from `tile` in one respect."""
    if isinstance(tile, Tile):
        changes = _of_plain(tile)
    elif isinstance(tile, HopperTile):
        changes = _of_hopper(tile, key.size)
    else:
        changes = _of_hopper_backward(tile)
    found = [replace(tile, **change) for change in changes]
    return tuple(near for near in _kept(architecture, key, found) if near != tile)


def _of_plain(tile: Tile) -> Iterator[Change]:
    yield from ({"block_q": block} for block in _beside(tile.block_q, _BLOCKS))
    yield from ({"block_kv": block} for block in _beside(tile.block_kv, _BLOCKS))
    yield from ({"warps": warps} for warps in _beside(tile.warps, _WARPS))
    yield from ({"stages": stages} for stages in _next_to(tile.stages, _STAGES))
    yield {"one_loop": not tile.one_loop}


def _of_hopper(tile: HopperTile, size: int) -> Iterator[Change]:
    yield from ({"block_kv": block} for block in _beside(tile.block_kv, _HOPPER_BLOCKS))
    yield from ({"stages": stages} for stages in _next_to(tile.stages, _HOPPER_STAGES))
    for consumers, budgets in _REGISTERS.items():
        dealt = budgets if consumers == tile.consumers else budgets[:1]
        for registers, of_consumer, of_producer in dealt:
            yield {
                "consumers": consumers,
                "registers": registers,
                "consumer_registers": of_consumer,
                "producer_registers": of_producer,
                "turns": tile.turns and consumers > 1,
            }
    if tile.consumers > 1:
        yield {"turns": not tile.turns}
    yield from ({name: not getattr(tile, name)} for name in ("persistent", "overlap"))
    if size in (96, 128, 256) and tile.consumers < 3:  # others never hold queries
        yield {"held": not tile.held}


def _of_hopper_backward(tile: HopperBackwardTile) -> Iterator[Change]:
    yield from ({"block": block} for block in _beside(tile.block, _HOPPER_BLOCKS))
    yield from ({"stages": stages} for stages in _next_to(tile.stages, _HOPPER_STAGES))
    yield from ({name: not getattr(tile, name)} for name in ("overlap", "anew", "persistent"))
    yield {"consumers": 2 if tile.consumers == 1 else 1}
    yield from ({name: not getattr(tile, name)} for name in ("divided", "one_ring"))


def _beside(size: int, limits: tuple[int, int]) -> list[int]:
    return [other for other in (size // 2, size * 2) if limits[0] <= other <= limits[1]]


def _firsts(tiles: tuple[Configuration, ...], *, plain: bool) -> list[Configuration]:
    """The first tile of each tier."""
    hopper = [tile for tile in tiles[:1] if not isinstance(tile, Tile)]
    return [*hopper, *([tile for tile in tiles if isinstance(tile, Tile)][:1] if plain else [])]


def _kept(architecture: str, key: Key, tiles: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """The legal tiles, each once, in order, of trusted size and with memory for their rings."""
    largest = _trusted_area(architecture, key)
    return tuple(
        tile
        for tile in dict.fromkeys(tiles)
        if legal(key, tile)
        and (
            tile.block_q * tile.block_kv <= largest
            if isinstance(tile, Tile)
            else _rings(key, tile) <= _HOPPER_SHARED
        )
    )


def _trusted_area(architecture: str, key: Key) -> int:
    """The most elements of a tile. In float32 large tiles spill kilobytes of registers, and one was
    miscompiled: none may be larger than those of the tables."""
    if key.element_bytes == 2:
        return 128 * 256
    tiles = [tile for tile in table_tiles(architecture, key) if isinstance(tile, Tile)]
    return max(tile.block_q * tile.block_kv for tile in tiles)


def _rings(key: Key, tile: HopperTile | HopperBackwardTile) -> int:
    """Bytes that a warp-specialised kernel needs at least: its rows and the stages of its rings."""
    dim, value_dim = dims_of(key.size)
    row, both = dim * key.element_bytes, (dim + value_dim) * key.element_bytes
    if isinstance(tile, HopperTile):
        return tile.consumers * 64 * row + tile.stages * tile.block_kv * both
    places = 2 if tile.persistent else 1
    stage = tile.block * (row if tile.one_ring else both)
    exchanged = 2 * tile.rows * tile.block * key.element_bytes if tile.divided else 0
    return places * tile.rows * both + tile.stages * stage + exchanged


def _next_to(count: int, limits: tuple[int, int]) -> list[int]:
    return [other for other in (count - 1, count + 1) if limits[0] <= other <= limits[1]]
