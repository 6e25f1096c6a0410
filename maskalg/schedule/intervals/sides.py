"""Which tiles the spans of one side of a proof meet: surely, perhaps, or surely not.

A tile that a touched span meets keeps some pair; one that an unfull span meets drops some.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...engine.normal_form import Bound
from ...proof.closed_forms import Span
from ..positions.sections import prepared
from ..summaries.summaries import Summaries
from ..tiling import Tiling
from .intervals import Rows, span_tiles
from .steps import tables_of_slots


@dataclass(frozen=True)
class SideTiles:
    """Tiles that some span may meet, and tiles that some span surely meets.

    `open` holds the spans that are not exact by themselves, each with the tiles it may meet.
    """

    rows: Rows
    maybe: torch.Tensor
    surely: torch.Tensor
    open: tuple[tuple[Span, torch.Tensor], ...]

    def decided(
        self, places: torch.Tensor, block: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """For the tiles at `places` `[n, 4]`: which are met, and which others may be.

        Sections are asked only where no span meets a tile already.
        """
        at = places.unbind(dim=1)
        met = self.surely[at].clone()
        perhaps = torch.zeros_like(met)
        for span, tiles in self.open:
            within = (tiles[at] & ~met).nonzero()[:, 0]
            if not len(within):
                continue
            section = None
            if span.section is not None:
                section = prepared(span.section, self.rows, block)
            if section is None:
                surely, maybe = self._summarised(span, places[within], block)
                met[within] = surely
                perhaps[within] |= maybe
            else:
                met[within] = section.tiles(places[within], block)
        return met, perhaps & ~met

    def _summarised(
        self, span: Span, places: torch.Tensor, block: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if span.clause is None:
            unknown = torch.zeros(len(places), dtype=torch.bool, device=places.device)
            return unknown, ~unknown
        return Summaries(self.rows, places.unbind(dim=1), block).met(span.clause)


def side_tiles(spans: tuple[Span, ...], tiling: Tiling, rows: Rows) -> SideTiles:
    """The verdict of one side's spans on all tiles, `[batch, heads, rows, columns]`."""
    maybe = torch.zeros(tiling.shape, dtype=torch.bool, device=tiling.device)
    surely = torch.zeros_like(maybe)
    undecided = []
    for span in spans:
        tiles = span_tiles(span, rows, tiling.block[1])
        maybe |= tiles
        if span.exact and in_order(span, tiling.form):
            surely |= tiles
        else:
            undecided.append((span, tiles))
    return SideTiles(rows, maybe, surely, tuple(undecided))


def in_order(span: Span, form: Bound) -> bool:
    """Whether the documents a span relies on are in order, so that it is exact."""
    pairs = span.documents
    return all(
        tables_of_slots(q_slot, kv_slot, form.values).contiguous() for q_slot, kv_slot in pairs
    )


def is_interval(span: Span, form: Bound) -> bool:
    """Whether a tile of queries touches exactly the keys of the interval of a span."""
    thinned = span.residue is not None or span.keys is not None
    return span.exact and not thinned and in_order(span, form)
