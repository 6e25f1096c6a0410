"""Calls on which kernels of whole blocks go wrong, found by running their text.

A block is a numpy array, and a pointer an array of places in a memory; any access outside of the
memory is an error.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from ...meaning import NotDefined
from ..bits import COLUMNS, LINES, SIDE, SIZES
from ..runs import Sources
from .intervals import Endless, Integer, Row, finder_of, functions

_BLOCK: Final = 16
_NO_TILE: Final = 2**30
_WORD: Final = 32
_NEVER: Final = 7
"""The value of memory that nothing was stored in."""


class _Block(np.ndarray[Any, Any]):
    """A block of numbers."""

    def to(self, _of: object) -> Any:
        return self.astype(np.int64)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self + other  # `other` may have a larger shape


class _Memory:
    """A pointer: an array of places in a memory."""

    def __init__(self, of: np.ndarray[Any, Any], at: Any = 0) -> None:
        self.of, self.at = of, at

    def __add__(self, more: Any) -> _Memory:
        return _Memory(self.of, self.at + more)

    def __sub__(self, less: Any) -> _Memory:
        return _Memory(self.of, self.at - less)

    def places(self, mask: Any) -> tuple[Any, Any]:
        at, inside = np.broadcast_arrays(self.at, mask)
        outside = inside & ((at < 0) | (at >= len(self.of)))
        if outside.any():
            raise NotDefined(f"place {at[outside].flat[0]} of {len(self.of)} is used")
        return at, inside


def _load(pointer: _Memory, mask: Any = True, other: int = 0) -> Any:
    at, inside = pointer.places(mask)
    return np.where(inside, pointer.of[at.clip(0, len(pointer.of) - 1)], other).view(_Block)


def _store(pointer: _Memory, value: Any, mask: Any = True) -> None:
    at, inside = pointer.places(mask)
    pointer.of[at[inside]] = np.broadcast_to(value, at.shape)[inside]


def _one_of_all(values: Any, axis: int, _function: object) -> Any:
    found = values.take(0, axis)
    if (values != np.expand_dims(found, axis)).any():
        raise NotDefined("elements of which one stands for all differ")
    return found


class _Programs:
    """The kernels of a file as functions, and the indices of the program that runs."""

    def __init__(self, file: str, sources: Sources | None) -> None:
        self.at: tuple[int, ...] = (0,)
        language = SimpleNamespace(
            arange=lambda first, end: np.arange(first, end).view(_Block),
            zeros=lambda shape, _of: np.zeros(shape, np.int64).view(_Block),
            full=lambda shape, value, _of: np.full(shape, value).view(_Block),
            load=_load, store=_store, reduce=_one_of_all, where=np.where, minimum=min, maximum=max,
            sum=np.sum, cumsum=np.cumsum, reshape=np.reshape, static_range=range,
            constexpr=lambda x: x, static_assert=lambda _holds: None, debug_barrier=lambda: None,
            program_id=lambda axis: self.at[axis], int32=None, float32=None,
        )  # fmt: skip
        known = {"tl": language, "SCALARS": (), "NO_TILE": _NO_TILE}
        self.kernels = functions(file, sources, known)

    def run(self, name: str, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
        for self.at in np.ndindex(grid):
            self.kernels[name](*args, **constants)


def _found(check: Callable[[], str | None]) -> str | None:
    """The error that a check finds, in words; None if it finds none or the text cannot be run."""
    try:
        return check()
    except Endless:
        return "a loop does not end"
    except NotDefined as problem:
        return str(problem)
    except (AttributeError, IndexError, NameError, TypeError, ValueError):
        return None


# --- whose turn it is to add to dQ ---------------------------------------------------------------


def wrong_turns(sources: Sources | None = None) -> str | None:
    """Visits that the kernels store or count wrongly; None if all are right."""
    programs, drawn = _Programs("gradient_sums", sources), random.Random(0)
    for tiles in (1, 9, 130, 300):
        for _ in range(4):
            length = tiles * _BLOCK - drawn.randrange(_BLOCK)
            rows = [_row(drawn, length) for _ in range(2)]
            found = _found(partial(_wrong_visits, programs, rows))
            if found:
                return f"visits: {found}: {rows[0]}; {rows[1]}"
    for size in (1, 2, 16, 17, 40, 70):
        for tiles in (1, 2, 17):
            numbers = [drawn.randrange(2) for _ in range(size * tiles)]
            visited = np.array(numbers).reshape(size, tiles)
            for together in (16, 32, 64):
                found = _found(partial(_wrong_counts, programs, visited, together))
                if found:
                    return f"turns: {found}: {size} rows of {tiles} tiles, {together} at once"
    return None


def _row(drawn: random.Random, length: int) -> Row:
    ends = [sorted(drawn.choices(range(-9, length + 9), k=2)) for _ in range(drawn.randint(1, 3))]
    return Row(tuple([(low, high) for low, high in ends]), (), length)


def _wrong_visits(programs: _Programs, rows: list[Row]) -> str | None:
    runs, length = functions("runs"), rows[0].kv_len
    finders = [finder_of(runs, row) for row in rows]

    def next_run(j: Any, _zero: Any, first: Any, *rest: Any) -> Any:
        return finders[int(first) // _BLOCK](Integer(j), *rest)

    tiles = -(-length // _BLOCK)
    stored = np.full(len(rows) * tiles, _NEVER)
    sizes = len(rows) * _BLOCK, tiles
    programs.run(
        "visits", (len(rows),), _Memory(stored), (), length, *sizes, *[0] * 24,
        NUMBERS=0, TABLES=0, NEXT_RUN=next_run, KEYS=_BLOCK, BLOCK=_BLOCK,
    )  # fmt: skip
    for (number, tile), found in np.ndenumerate(stored.reshape(len(rows), tiles)):
        wanted = min(rows[number].label(tile), 1)
        if found != wanted:
            return f"{found} is stored for tile {tile} of row {number}, not {wanted}"
    return None


def _wrong_counts(programs: _Programs, visited: Any, together: int) -> str | None:
    rows, tiles = visited.shape
    memory = np.concatenate([visited.flatten(), np.full(rows * tiles, _NEVER)])
    programs.run(
        "turns", (-(-tiles // _BLOCK),), _Memory(memory), rows, tiles,
        ROWS=together, COLUMNS=_BLOCK,
    )  # fmt: skip
    earlier = visited.cumsum(0) - visited
    wanted = np.stack([visited.sum(0) - earlier - visited, earlier])
    for place, found in np.ndenumerate(memory.reshape(wanted.shape)):
        if found != wanted[place]:
            half, row, tile = place
            where = ("later", "earlier")[half]
            told = "".join(map(str, visited[:, tile]))
            return (
                f"{found} visits of tile {tile} are counted in rows {where} than row {row}, not "
                f"{wanted[place]}; the rows visit it as {told}"
            )
    return None


# --- bits of pairs -------------------------------------------------------------------------------


def wrong_bits(sources: Sources | None = None) -> str | None:
    """A pair whose bit differs from the mask; None if all are right."""
    programs, drawn = _Programs("kept_bits", sources), np.random.default_rng(0)
    for rows, columns in ((5, 40), (70, 130), (130, 300)):
        for of_keys in (False, True):
            kept = _squares(drawn, (2, 3, rows, columns))
            found = _found(partial(_wrong_bit, programs, kept, of_keys))
            if found:
                sides = ("keys", "queries") if of_keys else ("queries", "keys")
                return f"{found}: bits of {rows} {sides[0]} and {columns} {sides[1]}"
    return None


def _squares(drawn: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A random mask for each batch entry and head; its squares are empty, full or neither."""
    *members, rows, columns = shape
    labels = drawn.integers(0, 3, (*members, -(-rows // SIDE), -(-columns // SIDE)))
    labels = labels.repeat(SIDE, -2).repeat(SIDE, -1)[..., :rows, :columns]
    return (labels == 2) | ((labels == 1) & (drawn.random(shape) < 0.5))


def _wrong_bit(programs: _Programs, kept: Any, of_keys: bool) -> str | None:
    batches, heads, rows, columns = kept.shape

    def of_member(batch: int, head: int) -> Any:
        if not (0 <= batch < batches and 0 <= head < heads):
            raise NotDefined(f"batch entry {batch} and head {head} are asked for")
        return kept[batch, head]

    def next_run(
        j: int, first: int, last: int, batch: int, head: int, length: int, *of: Any
    ) -> Any:
        for tile in range(j, -(-length // SIDE)):
            columns_of = slice(tile * SIDE, (tile + 1) * SIDE)
            square = of_member(batch, head)[first : last + 1, columns_of]
            if square.any():
                return tile, tile + 1, not (square.all() and square.shape[1] == SIDE)
        return _NO_TILE, _NO_TILE, False

    def masked(
        score: Any, batch: int, head: int, q: Any, k: Any, _length: int, _S: Any, _T: Any
    ) -> Any:
        row, column = np.broadcast_arrays(*((k, q) if of_keys else (q, k)))
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        found = of_member(batch, head)[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return np.where(found & inside, score, -np.inf).view(_Block)

    words = -(-columns // COLUMNS) * COLUMNS // _WORD
    memory = np.full((batches * heads, rows, words), _NEVER)
    for begin in (0, SIDE):  # rows are made in two pieces
        count = min(SIDE, rows) if begin == 0 else max(rows - SIDE, 0)
        piece = np.full(batches * heads * count * words, _NEVER)
        grid = (-(-count // SIDE) * (words * _WORD // SIDE), batches * heads)
        programs.run(
            "kept_bits", grid, _Memory(piece), (), begin, count, columns, words, columns, heads,
            *[0] * 24, NUMBERS=0, TABLES=0, HOLD=lambda *args: (None, None), MASKED=masked,
            NEXT_RUN=next_run, OF_KEYS=of_keys, SIDE=SIDE,
        )  # fmt: skip
        memory[:, begin : begin + count] = piece.reshape(batches * heads, count, words)
    memory = memory.flatten()
    lines = np.arange(batches * heads * rows)[:, None]
    tiles, down, across = _tiled(memory.reshape(batches * heads, rows, words))
    member, row = lines // rows * down * across, lines % rows
    for size in SIZES:
        for begin in range(0, columns, size):
            index = np.arange(begin, begin + size)[None, :]
            of_rows = programs.kernels["bits_of"](_Memory(memory), lines * words, index)
            of_tiles = programs.kernels["bits_of_tiles"](_Memory(tiles), member, across, row, index)
            for kind, (word, bit) in (("rows", of_rows), ("tiles", of_tiles)):
                found = ((word & bit) != 0).reshape(batches, heads, rows, size)
                wanted = kept[..., begin : begin + size]
                wrong = np.argwhere(found[..., : wanted.shape[-1]] != wanted)
                if len(wrong):
                    *place, line, column = wrong[0].tolist()
                    return (
                        f"in {kind}, {size} columns at once, the bit of batch entry {place[0]}, "
                        f"head {place[1]}, row {line} and column {begin + column} is wrong"
                    )
    return None


def _tiled(words: Any) -> tuple[Any, int, int]:
    """The words in tiles, which lie in random order, and the number of tiles down and across."""
    members, rows, _ = words.shape
    of_tile = COLUMNS // _WORD
    padded = np.pad(words, ((0, 0), (0, -rows % LINES), (0, 0)))
    tiles = padded.reshape(members, -1, LINES, padded.shape[2] // of_tile, of_tile).swapaxes(2, 3)
    down, across = tiles.shape[1:3]
    count = members * down * across
    order = np.random.default_rng(1).permutation(count)
    places, memory = order * LINES * of_tile + count, np.empty((count, LINES, of_tile), words.dtype)
    memory[order] = tiles.reshape(count, LINES, of_tile)
    return np.concatenate([places, memory.flatten()]), down, across
