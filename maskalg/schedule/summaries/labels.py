"""Labels of tiles from summaries, for masks with inexact closed forms.

No interval describes the tiles that tables of blocks, trees or spans of images keep. Three-valued
logic on summaries of the tensors decides for each tile whether some, or all, of its pairs may be
kept, on the tensors' device and without waiting for it. Kernels look up runs of these labels, the
*marks*.

Open tiles are divided as long as summaries decide some of the parts, then evaluated. A tile is
partial once one kept and one dropped pair are known; its other pairs are not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from ...engine.evaluate import kept_at
from ...engine.extents import Extents
from ...engine.memory import MEMORY, constant, memorable
from ...engine.normal_form import Bound
from ..intervals.intervals import rows_of
from ..tile_runs import marks_of
from ..tiling import MOST_TILES, Of, Tiling
from .summaries import Summaries

_FEWEST_TILES: Final = 1 << 10  # visiting so few tiles is faster than labelling them
_FEWEST_EACH_TIME: Final = 1 << 14  # likewise, if they are labelled at each call, or form one row

MOST_PAIRS: Final = 1 << 30  # entries of a tensor of pairs that are gone through


def summary_labels(tiling: Tiling, of: tuple[int, int] | None = None) -> torch.Tensor:
    """The label of each tile, EMPTY=0 or FULL=2 if summaries show it, else PARTIAL=1.

    uint8 `[batch, heads, rows, columns]`, remembered while the tensors live unchanged. At most
    `MOST_TILES`. `of` are the sides of smaller tiles in these tiles, if they are labelled, too.
    """
    form = tiling.form
    return MEMORY.recall(
        ("labels", tiling.key), (form.structure.mask,), form.values, lambda: _labels(tiling, of)
    )


def _labels(tiling: Tiling, of: tuple[int, int] | None) -> torch.Tensor:
    assert math.prod(tiling.shape) <= MOST_TILES
    extents = tiling.extents
    pairs = math.prod(tiling.shape[:2]) * extents.q_len * extents.kv_len <= MOST_PAIRS
    summaries = Summaries(rows_of(tiling), None, tiling.block, pairs, of)
    surely, perhaps = summaries.truth(tiling.form.structure.mask)
    return (surely.to(torch.uint8) + perhaps.to(torch.uint8)).expand(tiling.shape).contiguous()


def never_labelled(tiling: Tiling) -> bool:
    """Whether the tiles are one row of so few that `summary_marks` labels none."""
    one_row = tiling.extents.q_len <= tiling.block[0]
    return one_row and math.prod(tiling.shape) <= _FEWEST_EACH_TIME


def summary_marks(tiling: Tiling, of: Of) -> torch.Tensor:
    """The runs of labels from summaries, as `marks_of` makes them; remembered.

    If labelling takes longer than it saves, every tile is PARTIAL.
    """
    often = memorable(tiling.form.tables) and tiling.extents.q_len > tiling.block[0]
    fewest = _FEWEST_TILES if often else _FEWEST_EACH_TIME
    if not fewest < math.prod(tiling.shape) <= MOST_TILES:

        def all_partial() -> tuple[torch.Tensor]:
            ones = torch.ones(tiling.shape, dtype=torch.uint8, device=tiling.device)
            return (marks_of(ones, of, tiling),)

        # Of tiles alone: the same while a growing cache fills the last one.
        of_tiles = ("all partial", of, tiling.block, tiling.shape)
        return constant(of_tiles, tiling.device, all_partial)[0]

    def runs() -> torch.Tensor:
        return marks_of(summary_labels(tiling), of, tiling)

    key = ("runs", of, tiling.key)
    return MEMORY.recall(key, (tiling.form.structure.mask,), tiling.form.values, runs)


_PARTS: Final = (8, 4, 2, 7, 6, 5, 3)  # of a side, the first one that divides it
_SMALL: Final = 1 << 10  # elements of a tile that is evaluated
_PLACES_AT_ONCE: Final = 1 << 14
_ELEMENTS_AT_ONCE: Final = 1 << 23


@dataclass
class _Found:
    """The tiles known to keep a pair, and those known to drop one."""

    kept: torch.Tensor
    dropped: torch.Tensor

    def note(self, tile: torch.Tensor, kept: torch.Tensor, dropped: torch.Tensor) -> None:
        self.kept[tile[kept]] = True
        self.dropped[tile[dropped]] = True

    def open(self, tile: torch.Tensor) -> torch.Tensor:
        return ~(self.kept[tile] & self.dropped[tile])


Tiles = tuple[torch.Tensor, torch.Tensor, tuple[int, int]]  # index of the tile, places, block


def looked_at(tiling: Tiling, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether each tile at `places` `[n, 4]` keeps some pair, and whether it drops some."""
    form, rows = tiling.form, rows_of(tiling)
    nothing = torch.zeros(len(places), dtype=torch.bool, device=places.device)
    found = _Found(nothing, nothing.clone())
    tile = torch.arange(len(places), device=places.device)
    known: dict[tuple[int, int], Summaries] = {}
    groups = zip(tile.split(_PLACES_AT_ONCE), places.split(_PLACES_AT_ONCE), strict=True)
    stack: list[Tiles] = [(*group, tiling.block) for group in groups]
    while stack:
        tile, places, sides = stack.pop()
        open_ = found.open(tile)
        tile, places = tile[open_], places[open_]
        if not len(tile):
            continue
        if sides[0] * sides[1] <= _SMALL or _parts(sides) == (1, 1):
            found.note(tile, *_evaluated(form, places, sides, rows.extents))
            continue
        at = places.unbind(dim=1)
        known[sides] = (known.get(sides) or Summaries(rows, at, sides)).at(at)
        surely, perhaps = known[sides].truth(form.structure.mask)
        found.note(tile, surely, ~perhaps)
        left = perhaps & ~surely
        stack += _split(tile[left], places[left], sides, rows.extents)
    return found.kept, found.dropped


def _split(
    tile: torch.Tensor, places: torch.Tensor, block: tuple[int, int], extents: Extents
) -> list[Tiles]:
    """The parts of tiles, some thousands at a time; the first part of each tile comes last.

    Parts past the lengths are left out. The last parts are evaluated first, and decide most tiles.
    """
    parts = _parts(block)
    sides = (block[0] // parts[0], block[1] // parts[1])
    number = torch.arange(parts[0] * parts[1], device=places.device)
    batch, head, row, column = (index.repeat_interleave(len(number)) for index in places.T)
    number = number.repeat(len(places))
    row = row * parts[0] + number // parts[1]
    column = column * parts[1] + number % parts[1]
    within = (row * sides[0] < extents.q_len) & (column * sides[1] < extents.kv_len)
    smaller = torch.stack([batch, head, row, column], dim=1)[within]
    owner = tile.repeat_interleave(parts[0] * parts[1])[within]
    order = _turns(owner).argsort(descending=True, stable=True)
    at_once = max(1, _ELEMENTS_AT_ONCE // (sides[0] * sides[1]))
    at_once = min(_PLACES_AT_ONCE, at_once) if sides[0] * sides[1] <= _SMALL else _PLACES_AT_ONCE
    return [(owner[some], smaller[some], sides) for some in order.split(at_once)]


def _turns(owner: torch.Tensor) -> torch.Tensor:
    """For each entry, how many equal entries come before it, `[n]`."""
    ordered, order = owner.sort(stable=True)
    place = torch.arange(len(owner), device=owner.device)
    turn = place - torch.searchsorted(ordered, ordered)
    return torch.empty_like(turn).scatter_(0, order, turn)


def _parts(block: tuple[int, int]) -> tuple[int, int]:
    """The number of parts of each side of a tile; 1 if a side has no small divisor."""
    rows, columns = (
        next((parts for parts in _PARTS if side % parts == 0 and side > parts), 1) for side in block
    )
    return rows, columns


def _evaluated(
    form: Bound, places: torch.Tensor, block: tuple[int, int], extents: Extents
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether some element of each tile is kept, and whether some is dropped."""
    kept_ones, dropped_ones = [], []
    for kept in elements(form, places, block, extents):
        kept_ones.append(kept.any(dim=(1, 2)))
        dropped_ones.append(~kept.all(dim=(1, 2)))
    return torch.cat(kept_ones), torch.cat(dropped_ones)


def elements(
    form: Bound, places: torch.Tensor, block: tuple[int, int], extents: Extents
) -> Iterator[torch.Tensor]:
    """The elements of tiles, Boolean `[tiles, block_q, block_kv]`, some tiles at a time.

    Args:
        places: `[n, 4]`: batch entry, head, row and column of each tile.
        block: `(block_q, block_kv)`. A tile cut by the length repeats its last row or column, which
            changes no label.
    """
    row = torch.arange(block[0], device=places.device)
    column = torch.arange(block[1], device=places.device)
    for part in places.split(max(1, _ELEMENTS_AT_ONCE // (block[0] * block[1]))):
        q_idx = (part[:, 2, None] * block[0] + row).clamp(max=extents.q_len - 1)
        kv_idx = (part[:, 3, None] * block[1] + column).clamp(max=extents.kv_len - 1)
        indices = {
            "batch": part[:, 0, None, None],
            "head": part[:, 1, None, None],
            "q_idx": q_idx[:, :, None],
            "kv_idx": kv_idx[:, None, :],
        }
        kept = kept_at(form, indices)
        yield kept.expand(len(part), block[0], block[1])
