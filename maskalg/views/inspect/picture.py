"""The content of a mask's pictures: labels of blocks at a size that fits, and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ...engine.evaluate import kept_at
from ...engine.extents import Extents, Lengths, resolve
from ...engine.normal_form import Bound, bound
from ...formula.expression import Expression
from ...schedule.block_map import blocks
from ...schedule.intervals.intervals import rows_of
from ...schedule.rung import rung_of
from ...schedule.summaries.summaries import Summaries
from ...schedule.tile_runs import EMPTY, FULL, PARTIAL, counts_of
from ...schedule.tiling import Tiling, block_pair
from .choice import Choice, one_entry

_AT_ONCE: Final = 1 << 20


def labels_by_elements(form: Bound, extents: Extents, block: int) -> torch.Tensor:
    """The labels uint8 `[rows, columns]` of the first batch entry and head."""
    rows, columns = -(-extents.q_len // block), -(-extents.kv_len // block)
    # A block cut by the length repeats its last row or column, which changes no label.
    indices = {
        "batch": torch.tensor(0),
        "head": torch.tensor(0),
        "kv_idx": torch.arange(columns * block).clamp(max=extents.kv_len - 1)[None, :],
    }
    every_row = torch.arange(rows * block).clamp(max=extents.q_len - 1)[:, None]
    strip = max(1, _AT_ONCE // max(columns * block * block, 1)) * block
    labels = []
    for q_idx in every_row.split(strip):
        kept = kept_at(form, {**indices, "q_idx": q_idx})
        kept = kept.expand(len(q_idx), columns * block)
        tiles = kept.reshape(len(q_idx) // block, block, columns, block)
        labels.append(tiles.any(3).any(1).to(torch.uint8) + tiles.all(3).all(1).to(torch.uint8))
    return torch.cat(labels)


# The most elements evaluated in blocks that the proof leaves open: about a second.
_MOST_ELEMENTS: Final = 1 << 26
# The most positions looked up if tiles are decided position by position.
_MOST_LOOKUPS: Final = 1 << 18
FIRST: Final = Choice()


@dataclass(frozen=True, eq=False)
class Cells:
    """The blocks of one batch entry and one head of an expression.

    Attributes:
        title: the expression.
        block: side of a block in positions; the last row and column may be cut.
        q_len, kv_len: lengths in positions.
        notes: sentences that a reader must know.
    """

    title: str
    block: int
    q_len: int
    kv_len: int
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Picture(Cells):
    """The labels of the blocks, uint8 `[rows, columns]`, EMPTY=0, PARTIAL=1, FULL=2."""

    labels: torch.Tensor

    def counts(self) -> tuple[int, int, int]:
        """How many blocks are empty, partial and full."""
        return counts_of(self.labels)

    @property
    def empty_share(self) -> float:
        """Share of the blocks that are empty."""
        return self.counts()[EMPTY] / max(self.labels.numel(), 1)

    def kept_share(self) -> tuple[float, float]:
        """The least and the greatest share of kept elements that the blocks allow."""
        rows, columns = self.labels.shape
        heights = _sides(rows, self.block, self.q_len)
        widths = _sides(columns, self.block, self.kv_len)
        areas = heights[:, None] * widths[None, :]
        total = max(float(areas.sum()), 1.0)
        least = float(areas[self.labels == FULL].sum()) / total
        return least, float(areas[self.labels != EMPTY].sum()) / total


def picture(
    mask: Expression,
    q_len: int,
    kv_len: int | None,
    *,
    cells: int,
    block: int | None = None,
    choice: Choice = FIRST,
    most_elements: int | None = None,
) -> Picture:
    """The picture of one batch entry and head of a mask, at most `cells` blocks a side.

    Args:
        mask: the mask.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.
        cells: how many rows and columns of blocks fit.
        block: side of a block; by default the smallest power of two that fits `cells`.
        choice: which batch entry and head.
        most_elements: the most elements to evaluate in blocks that the proof leaves open; by
            default about a second's worth.
    """
    title, notes = str(mask), choice.notes(mask)
    mask = one_entry(mask, choice).to("cpu")
    form, lengths = bound(mask), Lengths(q_len, kv_len)
    extents = resolve(form, lengths)
    block = fitting_block(extents.q_len, extents.kv_len, cells, block)
    most = _MOST_ELEMENTS if most_elements is None else most_elements
    small = extents.q_len * extents.kv_len <= most
    rung = rung_of(form.structure)
    if is_decided(form, extents, block) or (small and not rung.by_position):
        found = blocks(mask, lengths, block).labels[0, 0]
    elif rung.decides_every_tile(form):
        found = _labels_of_runs(form, extents, block)[0, 0]
    elif small:
        found = labels_by_elements(form, extents, block)
    else:
        found = _labels_of_runs(form, extents, block)[0, 0]
        _decide_open(found, form, extents, block)
        notes = ("too long to look at every element: partial blocks may be empty or full", *notes)
    return Picture(title, block, extents.q_len, extents.kv_len, notes, found)


def fitting_block(q_len: int, kv_len: int, cells: int, asked: int | None = None) -> int:
    """The requested side of blocks, or the smallest power of two that cuts both lengths into at
    most `cells` blocks."""
    if asked is not None:
        return block_pair(asked)[0]
    block = 1
    while block * cells < max(q_len, kv_len):
        block *= 2
    return block


def is_decided(form: Bound, extents: Extents, block: int) -> bool:
    """Whether the proof decides every block quickly, so that no element is evaluated."""
    rung = rung_of(form.structure)
    lookups = -(-extents.q_len // block) * extents.kv_len
    if lookups > _MOST_LOOKUPS and rung.by_position:
        return False
    return rung.leaves_none_open(form)


def _labels_of_runs(form: Bound, extents: Extents, block: int) -> torch.Tensor:
    """Labels from the runs that a kernel would visit: empty and full are never wrong."""
    tiling = Tiling(form, extents, (block, block))
    return rung_of(form.structure).runs(tiling).labels(tiling.shape[3])


def _decide_open(labels: torch.Tensor, form: Bound, extents: Extents, block: int) -> None:
    """Label partial blocks empty or full if their smallest and largest values decide it."""
    open_ = (labels == PARTIAL).nonzero()
    rows = rows_of(Tiling(form, extents, (block, block), labels.device))
    places = torch.cat([open_.new_zeros(len(open_), 2), open_], dim=1)
    told = Summaries(rows, places.unbind(dim=1), (block, block), pairs=False)
    surely, perhaps = told.truth(form.structure.mask)
    found = torch.where(surely, FULL, torch.where(perhaps, PARTIAL, EMPTY))
    labels[open_.unbind(dim=1)] = found.to(torch.uint8)


def _sides(count: int, block: int, length: int) -> torch.Tensor:
    """The side of each block in positions, float64, the last one cut by the length."""
    starts = torch.arange(count, dtype=torch.float64) * block
    return (length - starts).clamp(max=block)


def evaluated(mask: Expression, q_len: int, kv_len: int, *, cells: int, choice: Choice) -> Picture:
    """The same picture by evaluating every element, without a proof."""
    title, notes = str(mask), choice.notes(mask)
    form = bound(one_entry(mask, choice).to("cpu"))
    extents = resolve(form, Lengths(q_len, kv_len))
    block = fitting_block(q_len, kv_len, cells)
    labels = labels_by_elements(form, extents, block)
    return Picture(title, block, q_len, kv_len, notes, labels)
