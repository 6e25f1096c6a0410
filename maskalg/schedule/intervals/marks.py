"""Which tiles the spans of one side of a proof mark: surely, perhaps, or surely not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from ...engine.normal_form import Bound
from ...proof.closed_forms import Span
from ..positions.sections import prepared
from ..summaries.summaries import Summaries
from .intervals import Rows, span_tiles
from .steps import step_tables


@dataclass(frozen=True)
class Marks:
    """Tiles that some span may mark, and tiles that some span surely marks.

    `open` holds the spans that are not exact by themselves, each with the tiles it may mark.
    """

    rows: Rows
    maybe: torch.Tensor
    surely: torch.Tensor
    open: tuple[tuple[Span, torch.Tensor], ...]

    def decided(
        self, places: torch.Tensor, block: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """For the tiles at `places` `[n, 4]`: which are marked, and which others may be.

        Sections are asked only where no span marks a tile already.
        """
        at = places.unbind(dim=1)
        marked = self.surely[at].clone()
        perhaps = torch.zeros_like(marked)
        for span, tiles in self.open:
            within = (tiles[at] & ~marked).nonzero()[:, 0]
            if not len(within):
                continue
            section = None
            if span.section is not None:
                section = prepared(span.section, self.rows, block)
            if section is None:
                surely, maybe = self._summarised(span, places[within], block)
                marked[within] = surely
                perhaps[within] |= maybe
            else:
                marked[within] = section.tiles(places[within], block)
        return marked, perhaps & ~marked

    def _summarised(
        self, span: Span, places: torch.Tensor, block: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if span.clause is None:
            unknown = torch.zeros(len(places), dtype=torch.bool, device=places.device)
            return unknown, ~unknown
        return Summaries(self.rows, places.unbind(dim=1), block).met(span.clause)


def marks_of(
    spans: tuple[Span, ...],
    form: Bound,
    rows: Rows,
    shape: tuple[int, int, int, int],
    block_kv: int,
) -> Marks:
    """What the spans of one side say of all tiles, `[batch, heads, rows, columns]`."""
    device = rows.environment.device
    maybe = torch.zeros(shape, dtype=torch.bool, device=device)
    surely = torch.zeros(shape, dtype=torch.bool, device=device)
    undecided = []
    for span in spans:
        tiles = span_tiles(span, rows, block_kv)
        maybe |= tiles
        if span.exact and in_order(span, form):
            surely |= tiles
        else:
            undecided.append((span, tiles))
    return Marks(rows, maybe, surely, tuple(undecided))


def in_order(span: Span, form: Bound) -> bool:
    """Whether the documents a span relies on are in order, so that it is exact."""
    pairs = [(form.values[q.index], form.values[kv.index]) for q, kv in span.documents]
    return all(
        step_tables(cast(torch.Tensor, q_ids), cast(torch.Tensor, kv_ids)).contiguous()
        for q_ids, kv_ids in pairs
    )


def is_interval(span: Span, form: Bound) -> bool:
    """Whether a tile of queries touches exactly the keys of the interval of a span."""
    thinned = span.residue is not None or span.keys is not None
    return span.exact and not thinned and in_order(span, form)
