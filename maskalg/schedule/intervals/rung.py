"""The rung of intervals with values put in; sections or summaries decide for inexact spans.

A row has at most two boundaries for each interval of its closed forms, whatever the length. A tile
that a touched span meets keeps some pair; one that an unfull span meets drops some.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, cast

import numpy as np
import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound, Structure, Value, tabled, transposed, without_tables
from ...formula.derived import documents_in
from ...proof.closed_forms import ClosedForms, Span
from ...proof.proof import closed_forms_of
from ..tile_runs import FULL, TileRuns, label_of
from ..tiling import MOST_TILES, Of, Tiling
from .intervals import Rows, key_range, rows_of, span_tiles
from .steps import tables_of_slots

if TYPE_CHECKING:
    from ..positions.rests import Sides
    from ..positions.sections import PreparedSection
    from ..summaries.summaries import Summaries


_PARTS: Final = 8  # of a side of a larger tile


@dataclass(frozen=True, eq=False)
class OpenSpan:
    """An inexact span, and the section or clause that decides the tiles it may meet.

    Tables for all tiles are made when tiles are first decided. Tables of a section serve tiles of
    up to `largest` positions a side.
    """

    span: Span
    tiling: Tiling
    rows: Rows
    largest: tuple[int, int]

    def met(self, asked: torch.Tensor, first: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of the `asked` tiles the span surely meets, and which it may meet.

        Args:
            asked: bool `[batch, heads, rows, columns]`, some of them True.
            first: the first of the rows.
        """
        if self._section is not None:
            section, sides = self._section
            met = section.tiles(asked, first, sides)
            return met, torch.zeros_like(met)
        if self.span.clause is None:
            return torch.zeros_like(asked), asked
        batch, head, row, column = asked.nonzero().unbind(dim=1)
        summaries = self._summaries.at((batch, head, row + first, column))
        surely, maybe = torch.zeros_like(asked), torch.zeros_like(asked)
        surely[asked], maybe[asked] = summaries.met(self.span.clause)
        return surely, maybe

    @cached_property
    def _section(self) -> tuple[PreparedSection, Sides] | None:
        if self.span.section is None:
            return None
        from ..positions.sections import prepared

        section = prepared(self.span.section, self.rows, self.largest)
        return None if section is None else (section, section.sides(self.tiling.block))

    @cached_property
    def _summaries(self) -> Summaries:
        from ..summaries.summaries import Summaries

        return Summaries(self.rows, None, self.tiling.block)


@dataclass(frozen=True)
class SideTiles:
    """The tiles that some span may meet, and those that one surely meets.

    Attributes:
        first: the first row of tiles.
        maybe, surely: bool `[batch, heads, rows, columns]`.
        open: the inexact spans, each with the tiles it may meet.
    """

    first: int
    maybe: torch.Tensor
    surely: torch.Tensor
    open: tuple[tuple[OpenSpan, torch.Tensor], ...]

    def decided(self, asked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of the `asked` tiles are met, and which others may be.

        Sections only decide tiles that no other span surely meets. Tiles that a span turns out not
        to meet are no longer among its `open` tiles.
        """
        met = self.surely & asked
        perhaps = torch.zeros_like(met)
        for span, tiles in self.open:
            within = tiles & asked & ~met
            if bool(within.any()):
                surely, maybe = span.met(within, self.first)
                met |= surely
                perhaps |= maybe
                tiles &= ~within | surely | maybe
        return met, perhaps & ~met


class Side:
    """The spans of one side of a mask, decided for some rows of tiles at a time.

    Args:
        spans: those of the side.
        tiling: the tiles.
        larger: the tiles of `_PARTS` times the side that each inexact span may meet; None if they
            are not known.
        largest: the largest block of tiles that the spans are asked about.
    """

    def __init__(
        self,
        spans: tuple[Span, ...],
        tiling: Tiling,
        larger: Larger | None = None,
        largest: tuple[int, int] | None = None,
    ) -> None:
        self._tiling = tiling
        self._rows = rows_of(tiling)
        self._larger = larger
        self._exact, self._open = [], []
        for span in spans:
            if span.exact and in_order(span, tiling.form):
                self._exact.append(span)
            else:
                self._open.append(OpenSpan(span, tiling, self._rows, largest or tiling.block))

    def tiles(self, first: int = 0, end: int | None = None) -> SideTiles:
        """The verdict on the tiles of the rows `first <= row < end`."""
        batch, heads, count, columns = self._tiling.shape
        end = count if end is None else min(end, count)
        rows = self._rows.part(first, end)
        shape = (batch, heads, end - first, columns)
        surely = torch.zeros(shape, dtype=torch.bool, device=self._tiling.device)
        for span in self._exact:
            surely |= span_tiles(span, rows, self._tiling.block[1])
        maybe, open_ = surely.clone(), []
        for number, open_span in enumerate(self._open):
            if self._larger is None:
                tiles = torch.ones_like(surely)
            else:
                tiles = parts_of(self._larger[number], first, end, columns)
            if self._larger is None or bool(tiles.any()):
                tiles &= span_tiles(open_span.span, rows, self._tiling.block[1])
                maybe |= tiles
            open_.append((open_span, tiles))
        return SideTiles(first, maybe, surely, tuple(open_))


def parts_of(larger: torch.Tensor, first: int, end: int, columns: int) -> torch.Tensor:
    """Whether each tile in the rows `first <= row < end` is a part of a chosen larger tile.

    Args:
        larger: the chosen tiles, bool `[batch, heads, rows, columns]`.
        first, end: rows of the parts.
        columns: how many columns of parts there are.
    """
    chosen = larger[:, :, first // _PARTS : -(-end // _PARTS)]
    parts = chosen.repeat_interleave(_PARTS, dim=3).repeat_interleave(_PARTS, dim=2)
    begin = first % _PARTS
    return parts[:, :, begin : begin + end - first, :columns].contiguous()


def in_order(span: Span, form: Bound) -> bool:
    """Whether the documents that a span relies on are in order, so that it is exact."""
    pairs = span.documents
    return all(
        tables_of_slots(q_slot, kv_slot, form.values).contiguous() for q_slot, kv_slot in pairs
    )


def is_interval(span: Span, form: Bound) -> bool:
    """Whether a tile of queries touches exactly the interval of keys of a span."""
    thinned = span.residue is not None or span.keys is not None
    return span.exact and not thinned and in_order(span, form)


_TILES_AT_ONCE: Final = 1 << 19
_ENDS_AT_ONCE: Final = 1 << 21
_FEW_TILES: Final = 1 << 18  # more are decided by larger ones first

Larger = list[torch.Tensor]  # of each inexact span, bool [batch, heads, rows, columns]
Ranges = list[tuple[torch.Tensor, torch.Tensor]]  # first tile and end, [batch, heads, rows]
Source = Literal["spans", "summaries"]


@dataclass(frozen=True)
class IntervalRung:
    """Tiles by intervals; see `schedule.rung.Rung`."""

    forms: ClosedForms

    on_host: ClassVar[Source] = "spans"
    in_kernel: ClassVar[Source] = "spans"
    most_marks: ClassVar[int] = MOST_TILES

    def runs(self, tiling: Tiling) -> TileRuns:
        shape, spans = tiling.shape[:3], self.forms.touched
        if tiling.block == (1, 1) and all(is_interval(span, tiling.form) for span in spans):
            # A pair is full where it is touched.
            first, end = _apart(_tile_ranges(spans, rows_of(tiling), 1))
            label = torch.full_like(first, FULL)
        else:
            touched, unfull = self._ranges(rows_of(tiling), tiling.block[1])
            points = torch.stack([*chain(*touched, *unfull)], dim=-1).sort(dim=-1).values
            first, end = points[..., :-1], points[..., 1:]
            label = labels_within(first, touched, unfull)
        row = torch.arange(math.prod(shape)).repeat_interleave(first.shape[3])
        parts = [part.flatten() for part in (first, end, label)]
        return TileRuns.of(row, parts[0], parts[1], parts[2], shape)

    def labels(self, tiling: Tiling) -> tuple[torch.Tensor, torch.Tensor]:
        shape, device = tiling.shape, tiling.device
        if 0 in shape or self.decides_every_tile(tiling.form):
            nowhere = torch.zeros((0, 4), dtype=torch.int64, device=device)
            return self.runs(tiling).to(device).labels(shape[3]), nowhere
        tilings = self._larger(tiling)
        largest = tilings[-1].block
        larger: tuple[Larger | None, Larger | None] = (None, None)
        for each in tilings[:0:-1]:
            strips = [strip[:2] for strip in self._strips(each, larger, largest)]
            larger = _joined([of for of, _ in strips]), _joined([of for _, of in strips])
        labels = torch.empty(shape, dtype=torch.uint8, device=device)
        open_ = []
        for touched, _, some, others, unknown in self._strips(tiling, larger, largest):
            first = touched.first
            labels[:, :, first : first + some.shape[2]] = label_of(some, others)
            # Neither surely empty nor surely full, and not surely both kept and dropped.
            places = (some & others & unknown).nonzero()
            places[:, 2] += first
            open_.append(places)
        return labels, torch.cat(open_)

    def _larger(self, tiling: Tiling) -> list[Tiling]:
        """A tiling, and tilings of larger and larger tiles that are decided before it."""
        found = [tiling]
        if all(span.exact and in_order(span, tiling.form) for span in self.forms.spans):
            return found  # all tiles are decided at once
        while math.prod(found[-1].shape) > _FEW_TILES and max(found[-1].shape[2:]) > 1:
            block_q, block_kv = found[-1].block
            found.append(replace(tiling, block=(block_q * _PARTS, block_kv * _PARTS)))
        return found

    def _strips(
        self, tiling: Tiling, larger: tuple[Larger | None, Larger | None], largest: tuple[int, int]
    ) -> Iterator[tuple[SideTiles, SideTiles, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Both sides of some rows of tiles at a time, decided; which tiles keep some pair, which
        drop some, and for which either is unknown, where it counts as True."""
        sides = [
            Side(spans, tiling, known, largest)
            for spans, known in zip((self.forms.touched, self.forms.unfull), larger, strict=True)
        ]
        shape = tiling.shape
        at_once = max(1, _TILES_AT_ONCE // (math.prod(shape) // shape[2]))
        for first in range(0, shape[2], at_once):
            touched, unfull = (side.tiles(first, first + at_once) for side in sides)
            unsure = touched.maybe & unfull.maybe & ~(touched.surely & unfull.surely)
            kept, may_keep = touched.decided(unsure)
            dropped, may_drop = unfull.decided(unsure)
            some = torch.where(unsure, kept | may_keep, touched.maybe)
            others = torch.where(unsure, dropped | may_drop, unfull.maybe)
            yield touched, unfull, some, others, may_keep | may_drop

    def decides_every_tile(self, form: Bound) -> bool:
        return all(is_interval(span, form) for span in self.forms.spans)

    @property
    def by_position(self) -> bool:
        return any(span.section is not None for span in self.forms.spans)

    def leaves_none_open(self, form: Bound) -> bool:
        return self.forms.exact and all(in_order(span, form) for span in self.forms.spans)

    def kept_keys(
        self, form: Bound, extents: Extents, most_spans: int | None = None
    ) -> torch.Tensor | None:
        for dropped, spans in ((False, self.forms.touched), (True, self.forms.unfull)):
            if most_spans is not None and len(spans) > most_spans:
                continue
            if all(is_interval(span, form) for span in spans):
                count = _united(spans, form, extents)
                return extents.kv_len - count if dropped else count
        return None

    def marks(self, tiling: Tiling, of: Of) -> torch.Tensor:
        from ..summaries.labels import summary_marks

        return summary_marks(tiling, of)

    def _ranges(self, rows: Rows, block_kv: int) -> tuple[Ranges, Ranges]:
        """For each tile of queries, the ranges of tiles of keys that each side's spans meet."""
        touched, unfull = (
            _tile_ranges(spans, rows, block_kv) for spans in (self.forms.touched, self.forms.unfull)
        )
        return touched, unfull


def _joined(strips: list[SideTiles]) -> Larger:
    """The tiles that each inexact span may meet, of all rows."""
    spans = zip(*[strip.open for strip in strips], strict=True)
    return [torch.cat([tiles for _, tiles in span], dim=2) for span in spans]


def labels_within(places: torch.Tensor, touched: Ranges, unfull: Ranges) -> torch.Tensor:
    """The labels of the tiles of keys at `places` that follow from the ranges of both sides."""
    return label_of(_inside(places, touched), _inside(places, unfull))


def _tile_ranges(spans: tuple[Span, ...], rows: Rows, block_kv: int) -> Ranges:
    ranges = [key_range(span, rows).tiles(block_kv) for span in spans]
    if not ranges:
        shape = np.broadcast_shapes(*[i.shape for i in rows.environment.indices.values()])
        none = torch.zeros(shape, dtype=torch.int64, device=rows.environment.device)
        return [(none, none)]
    return ranges


def _inside(places: torch.Tensor, ranges: Ranges) -> torch.Tensor:
    """Which places `[..., rows, columns]` lie in one of the ranges of their row."""
    found = [(places >= first[..., None]) & (places < end[..., None]) for first, end in ranges]
    inside: torch.Tensor = reduce(torch.logical_or, found)
    return inside


def _united(spans: tuple[Span, ...], form: Bound, extents: Extents) -> torch.Tensor:
    """How many keys lie in the intervals of spans for each query, int64 `[batch, heads, q_len]`."""
    tiling = Tiling(form, extents, (1, 1))
    rows, (batch, heads) = rows_of(tiling), tiling.shape[:2]
    at_once = max(1, _ENDS_AT_ONCE // max(len(spans) * batch * heads, 1))
    found = [torch.zeros((batch, heads, 0), dtype=torch.int64)]
    for begin in range(0, extents.q_len, at_once):
        ranges = _tile_ranges(spans, rows.part(begin, begin + at_once), 1)
        lows, ends = _apart(ranges)
        count = (ends - lows).clamp(min=0).sum(dim=-1)
        found.append(count.expand(batch, heads, -1).cpu())
    return torch.cat(found, dim=-1)


def _apart(ranges: Ranges) -> tuple[torch.Tensor, torch.Tensor]:
    """Each range without its parts in earlier ranges, ascending: first tiles, ends; ranges last."""
    first, end = (torch.stack(each, dim=-1) for each in zip(*ranges, strict=True))
    if len(ranges) > 1:
        first, order = first.sort(dim=-1)
        end = end.gather(-1, order)
        reach = torch.nn.functional.pad(end.cummax(dim=-1).values[..., :-1], (1, 0))
        first = torch.maximum(first, reach)
    return first, end


def tiles_of_intervals(form: Bound, extents: Extents, side: int) -> float:
    """How many tiles of `side` keys each interval of a row of as many queries has: the mean.

    The mask is one for all batch entries and heads; 0 if it reads a tensor.
    """
    if form.structure.mask_tables:
        return 0
    found = _tiles_of_rows(form.structure, _numbers(form), extents.q_len, extents.kv_len, side)
    return found.mean / max(found.intervals, 1)


def tiles_of_columns(form: Bound, extents: Extents, side: int) -> tuple[float, float]:
    """How many tiles of `side` queries columns of as many keys have: the most, and the mean.

    Of lengths in whole tiles, so that little is computed anew while lengths grow. As for
    `tiles_of_intervals`, but documents count by their lengths, if these are known; zeros if not.
    """
    documents = _related(form)
    if documents is None:
        return 0, 0
    structure = transposed(without_tables(form.structure))
    kv_len, q_len = (-(-length // side) * side for length in (extents.kv_len, extents.q_len))
    found = _tiles_of_rows(structure, _numbers(form), kv_len, q_len, side)
    # A document of a tile's length lies in two tiles, if it does not begin with one.
    most, mean = (length / side + 1 for length in documents)
    # Causal masks keep half of a document's pairs, windows longer than it all.
    part = max(found.mean / max(found.most, 1), 0.5)
    return min(found.most, most), min(found.mean, part * mean)


def _related(form: Bound) -> tuple[float, float] | None:
    """Tokens that documents relate to a token: the most, and the mean.

    Infinite without documents; None if they are unknown, or if the mask keeps pairs outside of
    them.
    """
    if any(part.op in ("or", "not") for part in tabled(form.structure)):
        return None
    related = [(math.inf, math.inf)]
    for slot in form.structure.mask_rows:
        found = documents_in(cast(torch.Tensor, form.values[slot.index]))
        if found is None or found.related is None:
            return None
        related.append(found.related)
    return min(related)


def _numbers(form: Bound) -> tuple[Value, ...]:
    return tuple([0 if isinstance(value, torch.Tensor) else value for value in form.values])


class _Tiles(NamedTuple):
    """Tiles of rows, the most and the mean, and the number of intervals of a row."""

    most: float
    mean: float
    intervals: int


@lru_cache(maxsize=1024)
def _tiles_of_rows(
    structure: Structure, values: tuple[Value, ...], q_len: int, kv_len: int, side: int
) -> _Tiles:
    one = Extents(q_len, kv_len, batch=1, heads=1)
    rows = rows_of(Tiling(Bound(structure, values), one, (side, side), torch.device("cpu")))
    spans = closed_forms_of(structure).touched
    tiles = [key_range(span, rows).tiles(side) for span in spans]
    if not tiles or not q_len:
        return _Tiles(0, 0, 0)
    found = sum((end - first).double() for first, end in tiles)
    assert isinstance(found, torch.Tensor)
    return _Tiles(float(found.max()), float(found.mean()), len(tiles))


def tiles_of_documents(form: Bound, extents: Extents, side: int) -> float:
    """The mean number of tiles of `side` keys in a token's document; 0 if unknown.

    If lengths are on the CPU, the mean is over tokens. If they are on a device, only their number
    is known, so the mean is over documents, which is at most the mean over tokens.
    """
    least = 0.0
    for slot in form.structure.mask_rows:
        found = documents_in(cast(torch.Tensor, form.values[slot.index]))
        if found is None:
            return 0
        keys = extents.kv_len / max(found.number, 1) if found.keys is None else found.keys
        least = min(least, keys) if least else keys
    return least / side
