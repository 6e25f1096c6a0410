"""The work under a mask: blocks by label, elements kept, operations saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch

from ...engine.extents import Lengths, resolve
from ...engine.normal_form import bound
from ...formula.expression import Expression
from ...questions.cost import elements_of, kept_keys
from ...schedule.block_map import blocks, segments
from ...schedule.rung import rung_of
from ...schedule.tile_runs import EMPTY, FULL
from .picture import Picture, is_decided

# Rows of blocks whose runs are found: some seconds and some hundred megabytes.
_MOST_ROWS_OF_BLOCKS: Final = 1 << 16
# What is looked at for exact counts: about half a second.
_MOST_BLOCKS: Final = 1 << 20
_MOST_ELEMENTS: Final = 1 << 27
_MOST_ROWS: Final = 1 << 17
_MOST_ENDS: Final = 1 << 21  # rows times intervals in each


@dataclass(frozen=True)
class Tally:
    """Counts of a mask that depends on neither batch nor head.

    Attributes:
        block: side of the counted blocks, which are those of a kernel.
        rows, columns: how many of them.
        empty, partial, full: blocks by the label that a kernel uses. Unless `exact`, some of the
            partial ones may be empty or full.
        visited: elements of the blocks that a kernel computes.
        kept: the least and the most kept elements; equal if they were counted.
        total: elements of the whole matrix.
    """

    block: int
    rows: int
    columns: int
    empty: int
    partial: int
    full: int
    exact: bool
    visited: int
    kept: tuple[int, int]
    total: int


def tally(mask: Expression, lengths: Lengths, block: int) -> Tally:
    """The counts of a mask without batch and head; the time grows with rows, not with blocks."""
    form = bound(mask)
    extents = resolve(form, lengths)
    q_len, kv_len = extents.q_len, extents.kv_len
    rows, columns = -(-q_len // block), -(-kv_len // block)
    visits = segments(mask, lengths, block)
    empty, partial, full = visits.counts()
    rung = rung_of(form.structure)
    exact = rung.decides_every_tile(form)
    if not exact and rows * columns <= _MOST_BLOCKS:
        exact = is_decided(form, extents, block) or q_len * kv_len <= _MOST_ELEMENTS
        if exact:
            labels = blocks(mask, lengths, block)
            empty, partial, full = labels.counts()
    visited = elements_of(visits)
    kept = None
    if 0 < q_len <= _MOST_ROWS and kv_len:
        kept = kept_keys(form, extents, budget=_MOST_ELEMENTS // 8)
    elif q_len and kv_len:
        kept = rung.kept_keys(form, extents, most_spans=_MOST_ENDS // q_len)
    if kept is None:
        bounds = (elements_of(visits, FULL), visited)
    else:
        bounds = (int(kept.sum()), int(kept.sum()))
    return Tally(block, rows, columns, empty, partial, full, exact, visited, bounds, q_len * kv_len)


def counted_side(block: int, length: int) -> int:
    """The side of the blocks to count: `block`, doubled while there are too many rows of them."""
    while -(-length // block) > _MOST_ROWS_OF_BLOCKS:
        block *= 2
    return block


def sharpened(found: Tally, shown: Picture) -> Tally:
    """The counts, improved by larger blocks that a picture shows as empty or full.

    `visited` stays the same.
    """
    if found.exact or shown.block % found.block or not found.total:
        return found
    blocks = _within(shown, found.rows, found.columns, shown.block // found.block)
    elements = _within(shown, shown.q_len, shown.kv_len, shown.block)
    empty, full = max(found.empty, blocks[EMPTY]), max(found.full, blocks[FULL])
    least, most = found.kept
    return replace(
        found,
        empty=empty,
        full=full,
        partial=found.rows * found.columns - empty - full,
        kept=(max(least, elements[FULL]), min(most, found.total - elements[EMPTY])),
    )


def _within(shown: Picture, rows: int, columns: int, side: int) -> list[int]:
    """How many of `rows` times `columns` lie in blocks of each label, `side` a side in a block."""
    heights, widths = (
        (count - torch.arange(blocks) * side).clamp(max=side)
        for count, blocks in zip((rows, columns), shown.labels.shape, strict=True)
    )
    areas = heights[:, None] * widths
    return [int(areas[shown.labels == label].sum()) for label in range(3)]
