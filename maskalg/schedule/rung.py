"""The rung of a mask: the method that decides its tiles, chosen once for a structure.

    closed form             intervals of keys for each tile of queries, from numbers alone
    digits                  masks of images and videos, one digit of a position at a time
    token sets, predicates  intervals without some positions, and tables that decide tile by tile
    summaries               smallest and largest values of blocks, if intervals are inexact
    evaluation              elements of the tiles that are still open

Spans of a proof are decided one by one, so one class serves all rungs but digits; summaries of
tensors narrow its runs. Other packages ask a rung for runs, labels, counts and marks, and for the
source of its runs.

If closed forms are inexact, kernels look up runs of labelled tiles. Labels come from digits, once
for a pair of lengths, or from summaries of tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, Protocol

import torch

from ..engine.extents import Extents
from ..engine.normal_form import Bound, Structure
from ..proof.proof import closed_forms_of
from .intervals.rung import IntervalRung
from .tile_runs import TileRuns, rows_together
from .tiling import Of, Tiling

Source = Literal["spans", "digits", "summaries"]


class Rung(Protocol):
    """A rung: how the tiles of a mask are decided, for any values and lengths.

    Attributes:
        on_host: the source of runs: spans of the closed forms, digits, or spans narrowed by
            summaries of tensors.
        in_kernel: the source in a kernel. Kernels compute spans; they look up marks from digits
            instead, or from summaries in addition.
        most_marks: the largest number of tiles marked for a kernel.
        by_position: whether `labels` decides some tiles position by position, which may take longer
            than evaluating their elements.
    """

    @property
    def on_host(self) -> Source: ...

    @property
    def in_kernel(self) -> Source: ...

    @property
    def most_marks(self) -> int: ...

    @property
    def by_position(self) -> bool: ...

    def runs(self, tiling: Tiling) -> TileRuns:
        """The runs of a call, on the host, without evaluating open tiles."""

    def labels(self, tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
        """The labels of all tiles, and the places `[n, 4]` of those that stay open.

        Labels are uint8 `[batch, heads, rows, columns]`; open tiles are PARTIAL. More tiles are
        decided than by `runs`: sections and summaries decide tiles that intervals leave open.
        """

    def decides_every_tile(self, form: Bound) -> bool:
        """Whether `runs` labels each tile exactly."""

    def leaves_none_open(self, form: Bound) -> bool:
        """Whether `labels` decides every tile, so that no element is evaluated."""

    def kept_keys(
        self, form: Bound, extents: Extents, most_spans: int | None = None
    ) -> torch.Tensor | None:
        """How many keys each query keeps, int64 `[batch, heads, q_len]`.

        None if the rung cannot count exactly, or needs more than `most_spans` intervals a query.
        """

    def marks(self, tiling: Tiling, of: Of) -> torch.Tensor:
        """Runs of square tiles as `marks_of` gives them."""


@lru_cache(maxsize=4096)
def rung_of(structure: Structure) -> Rung:
    """The rung of a structure's mask."""
    forms = closed_forms_of(structure)
    # Imports slow down a first call, so only masks with digits import their rung.
    if forms.digits is not None:
        from .digits.rung import DigitRung

        return DigitRung(forms.digits, structure.mask_tables)
    opaque = "opaque" in structure.mask.ops()
    if structure.mask_tables and forms.rung != "closed form" and not opaque:
        from .summaries.rung import SummaryRung

        return SummaryRung(forms)
    return IntervalRung(forms)


_SMALLEST_BITS: Final = 6


@dataclass(frozen=True)
class Layout:
    """How runs of tiles lie in memory.

    Attributes:
        grain_bits: a labelled tile has `2**grain_bits` queries and as many keys.
        of_batch, of_head: rows from one batch entry, and from one head, to the next; 0 where the
            mask is one for all.
    """

    grain_bits: int
    of_batch: int
    of_head: int


def layout_of(form: Bound, extents: Extents, of: Of) -> Layout:
    """The layout of the runs of a call; arguments as in `marked_runs`."""
    bits = _SMALLEST_BITS
    longest = max(extents.q_len, extents.kv_len)
    most = rung_of(form.structure).most_marks
    counts = Tiling(form, extents, (1 << bits, 1 << bits)).shape
    while math.prod(counts) > most and 1 << bits < longest:
        bits += 1
        counts = Tiling(form, extents, (1 << bits, 1 << bits)).shape
    rows = counts[2 if of == "queries" else 3]
    if of == "keys, either way":
        rows = -(-rows // rows_together(1 << bits))
    of_batch = counts[1] * rows if counts[0] > 1 else 0
    return Layout(bits, of_batch, rows if counts[1] > 1 else 0)


def has_few_tiles(form: Bound, extents: Extents) -> bool:
    """Whether there is one row of so few tiles that labels would take longer than they save."""
    from .summaries.labels import never_labelled

    smallest = 1 << _SMALLEST_BITS  # tiles are larger where there are many
    return never_labelled(Tiling(form, extents, (smallest, smallest)))


def marked_runs(form: Bound, extents: Extents, of: Of, device: torch.device) -> torch.Tensor:
    """Runs of each row of tiles from each column on, int32 `[batch, heads, rows, columns, 2]`, or
    `[batch, heads, rows, 2, columns, 2]` from the first column and from the last.

    Entries are those of `marks_of`. Rows are tiles of queries and columns tiles of keys, or the
    other way round. Remembered while the tensors live unchanged.
    """
    grain = 1 << layout_of(form, extents, of).grain_bits
    return rung_of(form.structure).marks(Tiling(form, extents, (grain, grain), device), of)
