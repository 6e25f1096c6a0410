"""Bits of pairs in tiles of ROWS rows and COLUMNS columns, of which only partial ones are kept.

A table begins with the place of each tile, counted in integers from the table's begin, int32
`[members, rows of tiles, tiles of a row]`. Then come a tile without a kept pair, one without a
dropped pair, and the partial tiles, each int32 `[ROWS, COLUMNS / 32]`. `kernels/kept_bits.py`
reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch.nn.functional import pad

from ...schedule.tile_runs import label_of

ROWS: Final = 64  # of a tile; the LINES of the kernel
COLUMNS: Final = 256
_MORE_DOWN: Final = 256 // ROWS  # rows of empty tiles, for a kernel's tile that the length cuts
_WORDS: Final = COLUMNS // 32
_OF_TILE: Final = ROWS * _WORDS
_SHARED: Final = 2  # the tile without a kept pair, and the one without a dropped pair


def places_of(rows: int, columns: int) -> tuple[int, int]:
    """How many tiles have a place, down and across."""
    return -(-rows // ROWS) + _MORE_DOWN, -(-columns // COLUMNS)


def bits_in_tiles(
    made: Callable[[int, int], torch.Tensor],
    size: tuple[int, int, int],
    at_once: int,
    most: int,
    device: torch.device,
) -> torch.Tensor | None:
    """The table, or None if it would be too large. The host waits for the numbers of partial tiles.

    Args:
        made: makes the bits of the rows from one to another: int32 `[members, rows, words]`, with
            a multiple of COLUMNS / 32 words.
        size: batch entries and heads with masks of their own, together; rows; columns.
        at_once: the most bytes of bits that are made together; those of ROWS rows must fit.
        most: the most bytes of the table.
        device: where the bits are made.
    """
    members, rows, columns = size
    down, across = places_of(rows, columns)
    of_lines = members * across * _OF_TILE * 4
    count, room = _SHARED, most // 4 - members * down * across
    if of_lines > at_once or count * _OF_TILE > room:
        return None
    tile_of = torch.zeros(members, down, across, dtype=torch.int32, device=device)
    shared = torch.zeros(_SHARED, ROWS, _WORDS // 2, dtype=torch.int64, device=device)
    shared[1] = -1
    kept, step = [shared], at_once // of_lines * ROWS
    for begin in range(0, rows, step):
        tiles = _tiles(made(begin, min(begin + step, rows)))
        some, every = (tiles != 0).any(4).any(3), (tiles == -1).all(4).all(3)
        partial = some & ~every
        number = partial.flatten().cumsum(0).view_as(partial) + (count - 1)
        lines = tile_of[:, begin // ROWS :][:, : tiles.shape[1]]
        lines.copy_(torch.where(partial, number, every.long()))
        kept.append(tiles[partial])
        count += len(kept[-1])
        if count * _OF_TILE > room:
            return None
    places = tile_of * _OF_TILE + tile_of.numel()
    return torch.cat([places.flatten(), *[tiles.view(torch.int32).flatten() for tiles in kept]])


def _tiles(bits: torch.Tensor) -> torch.Tensor:
    """The tiles of rows of bits, int64: `[members, down, across, ROWS, COLUMNS / 64]`.

    The last row stands for those after it, so that they change no label.
    """
    bits = bits.view(torch.int64)
    more = -bits.shape[1] % ROWS
    if more:
        bits = torch.cat([bits, bits[:, -1:].expand(-1, more, -1)], dim=1)
    tiles: torch.Tensor = bits.unflatten(1, (-1, ROWS)).unflatten(3, (-1, _WORDS // 2))
    return tiles.transpose(2, 3)


def labels_of_tiles(table: torch.Tensor, size: tuple[int, int, int], side: int) -> torch.Tensor:
    """The label of each tile of `side` rows and columns, a power of two from 32.

    Args:
        table: as returned by `bits_in_tiles`.
        size: as passed there.
        side: rows and columns.
    """
    members, rows, columns = size
    down, across = places_of(rows, columns)
    count, small = members * down * across, min(side, ROWS)
    number = (table[:count].view(members, down, across) - count)[:, :-_MORE_DOWN] // _OF_TILE
    words = table[count:].view(-1, ROWS, COLUMNS // small, small // 32)
    of_tiles = pooled((words != 0).any(-1), (words == -1).all(-1), (small, 1))
    some, every = (of[number].transpose(2, 3).flatten(3).flatten(1, 2) for of in of_tiles)
    some, every = pooled(some, every, (side // small, side // small))
    return label_of(some, ~every)[:, : -(-rows // side), : -(-columns // side)].contiguous()


def pooled(
    some: torch.Tensor, every: torch.Tensor, by: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether some pair, and every pair, of `by` rows and columns together is kept.

    Rows and columns after the last ones change neither.
    """
    cut = (0, -some.shape[-1] % by[1], 0, -some.shape[-2] % by[0])
    some = pad(some, cut).unflatten(-1, (-1, by[1])).any(-1).unflatten(-2, (-1, by[0])).any(-2)
    every = pad(every, cut, value=True)
    every = every.unflatten(-1, (-1, by[1])).all(-1).unflatten(-2, (-1, by[0])).all(-2)
    return some, every
