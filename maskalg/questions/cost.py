"""`mask.cost()`: the work of attention under a mask, counted without a dense matrix.

Kept keys are counted by intervals, boxes and sums; only elements that the proof leaves open are
evaluated. Sums are signed, over the clauses of a mask, each counted without its elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from ..engine.evaluate import device_of, kept_at, kept_by_rows
from ..engine.extents import Extents, Lengths, dependence
from ..engine.normal_form import Bound, bound
from ..errors import MaskValueError
from ..formula.expression import Expression
from ..proof.closed_forms import Section
from ..schedule.block_map import Segments, blocks, segments
from ..schedule.intervals.intervals import rows_of
from ..schedule.positions.sections import section_over
from ..schedule.rung import rung_of
from ..schedule.tile_runs import PARTIAL
from ..schedule.tiling import Tiling, block_pair
from .domain import extents_of

_ELEMENTS_AT_ONCE: Final = 1 << 22
_TILE: Final = 128
_CHEAPER: Final = 8  # how much cheaper an element is where all of a query's are evaluated
_NARROWER: Final = 64  # how many times as much tiles leave open as rows, at most
_MOST_EVALUATED: Final = 1 << 32  # a minute or two


def kept_pairs(form: Bound, extents: Extents) -> int:
    """How many elements are kept, of the batch entries and heads that the mask tells apart.

    Elements are evaluated only if neither the intervals of rows nor sums over the clauses of the
    mask count them.

    Raises:
        MaskValueError: more elements than can be evaluated in a minute or two.
    """
    counts = rung_of(form.structure).kept_keys(form, extents)
    if counts is None:
        total = _summed(form, extents)
        if total is not None:
            return total
        counts = _by_elements(form, extents, _MOST_EVALUATED)
        if counts is None:
            raise MaskValueError(
                f"cost(q_len={extents.q_len}, kv_len={extents.kv_len}) would have to evaluate more "
                f"than {_MOST_EVALUATED} elements of this mask, which no sum over its clauses "
                "counts: ask for shorter lengths, or count its blocks alone by "
                "mask.segments(q_len, kv_len).counts()."
            )
    return int(counts.sum())


def kept_keys(form: Bound, extents: Extents, budget: int | None = None) -> torch.Tensor | None:
    """The number of keys each query keeps, int64 `[batch, heads, q_len]`.

    Batch and heads are 1 where the mask does not depend on them. Where the closed forms are exact,
    or a sum over the clauses tells, no element is evaluated, whatever the length.

    Args:
        form: the mask.
        extents: lengths, batch and heads.
        budget: most elements to evaluate; None means all. Past it the answer is None.
    """
    counts = rung_of(form.structure).kept_keys(form, extents)
    if counts is None:
        counts = _summed_by_row(form, extents)
    return _by_elements(form, extents, budget) if counts is None else counts


def _by_elements(form: Bound, extents: Extents, budget: int | None) -> torch.Tensor | None:
    if budget is not None and _open(form, extents) > _NARROWER * budget:
        return None
    runs = rung_of(form.structure).runs(Tiling(form, extents, (1, 1)))
    length, places, cut = runs.tiles, runs.places, runs.label == PARTIAL
    places, first, sizes = places[cut], runs.first[cut], length[cut]
    open_ones, whole = int(sizes.sum()), math.prod(runs.shape) * extents.kv_len
    if budget is not None and open_ones > budget:
        return None
    row = runs.shape[0] * runs.shape[1] * extents.kv_len
    if open_ones * _CHEAPER > whole and row <= _ELEMENTS_AT_ONCE:
        # What depends on the query or the key alone is computed once for each.
        return torch.cat([kept.sum(dim=3).cpu() for _, kept in kept_by_rows(form, extents)], dim=2)
    count = torch.zeros(math.prod(runs.shape), dtype=torch.int64)
    count = count.index_add_(0, runs.row_of, torch.where(cut, 0, length)).view(runs.shape)
    for rows, starts, widths in _portions(places, first, sizes):
        owner = torch.arange(len(rows)).repeat_interleave(widths)
        column = torch.arange(len(owner)) - (widths.cumsum(0) - widths)[owner] + starts[owner]
        kept = _kept(form, rows[owner], column)
        found = torch.zeros(len(rows), dtype=torch.int64).index_add_(0, owner, kept.long())
        count.index_put_(tuple(rows.T), found, accumulate=True)
    return count


def _open(form: Bound, extents: Extents) -> int:
    """How many elements tiles leave open; single rows leave fewer."""
    runs = rung_of(form.structure).runs(Tiling(form, extents, (_TILE, _TILE)))
    return int(runs.tiles[runs.label == PARTIAL].sum()) * _TILE**2


Portion = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _portions(rows: torch.Tensor, first: torch.Tensor, sizes: torch.Tensor) -> list[Portion]:
    """Runs in groups of about `_ELEMENTS_AT_ONCE` elements: their rows, first keys and widths."""
    if not len(rows):
        return []
    group = (sizes.cumsum(0) - 1) // _ELEMENTS_AT_ONCE
    _, members = group.unique_consecutive(return_counts=True)
    shares = members.tolist()
    return list(zip(rows.split(shares), first.split(shares), sizes.split(shares), strict=True))


def _kept(form: Bound, rows: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Whether the elements at `rows` `[n, 3]` and `column` `[n]` are kept."""
    device = device_of(form)
    names = ("batch", "head", "q_idx")
    indices = {name: rows[:, i].to(device) for i, name in enumerate(names)}
    indices["kv_idx"] = column.to(device)
    return kept_at(form, indices).expand(len(column)).cpu()


def _summed(form: Bound, extents: Extents) -> int | None:
    """How many elements are kept, of the batch entries and heads that the mask tells apart.

    None where a clause cannot be counted.
    """
    from ..proof.terms import signed_sum  # with SymPy

    found = signed_sum(form.structure)
    if found is None:
        return None
    sizes = dependence(form.structure.mask, form, extents)
    total = 0
    for term in found.terms:
        # Clauses of limits alone are counted fastest.
        sections = [section for section in (term.keys, term.queries) if section is not None]
        count = _counted(min(sections, key=lambda section: len(section.order)), form, extents)
        if count is None:
            return None
        total += term.sign * int(count.sum())
    whole = sizes.batch * sizes.heads * extents.q_len * extents.kv_len
    return whole - total if found.dropped else total


def _summed_by_row(form: Bound, extents: Extents) -> torch.Tensor | None:
    """The number of keys each query keeps, int64 `[batch, heads, q_len]`.

    None where a clause cannot be counted query by query.
    """
    from ..proof.terms import signed_sum  # with SymPy

    found = signed_sum(form.structure)
    if found is None:
        return None
    sizes = dependence(form.structure.mask, form, extents)
    total = torch.zeros(sizes.batch, sizes.heads, extents.q_len, dtype=torch.int64)
    for term in found.terms:
        count = None if term.keys is None else _counted(term.keys, form, extents)
        if count is None:
            return None
        total += term.sign * count.cpu()
    return extents.kv_len - total if found.dropped else total


def _counted(section: Section, form: Bound, extents: Extents) -> torch.Tensor | None:
    """How many own positions each other position takes, `[batch, heads, other positions]`."""
    sizes = dependence(form.structure.mask, form, extents)
    told = (sizes.batch, sizes.heads)
    lengths = (extents.q_len, extents.kv_len)
    if section.own == "kv_idx":
        lengths = lengths[::-1]
    if 0 in lengths:
        return torch.zeros((*told, lengths[1]), dtype=torch.int64)
    rows = rows_of(Tiling(form, extents, (extents.q_len, extents.kv_len)))
    prepared = section_over(section, lengths, 1, rows.environment)
    return None if prepared is None else prepared.counts(*told)


_MOST_BLOCKS: Final = 1 << 20


@dataclass(frozen=True)
class Cost:
    """Elements, blocks and operations of attention under a mask, for all batch entries and heads.

    Attributes:
        kept: elements that are kept; `total` is how many there are.
        empty, partial, full: blocks by label. Unless `labelled`, the labels are those of
            `mask.segments`, as a kernel uses them: some partial blocks may be empty or full.
        visited: elements of the blocks in `mask.segments`, which a kernel computes.
        block: `(block_q, block_kv)`.
        labelled: whether the labels are those of `mask.blocks`: if intervals decide them, or there
            are at most 1,048,576 blocks.
    """

    kept: int
    total: int
    empty: int
    partial: int
    full: int
    visited: int
    block: tuple[int, int]
    labelled: bool

    def forward_flops(self, head_dim: int, value_dim: int | None = None) -> int:
        """Operations of q k^T and p v on the kept elements; a multiply-add is two.

        Args:
            head_dim: dimensions of queries and keys.
            value_dim: dimensions of values, if they differ.
        """
        return 2 * self.kept * (head_dim + (head_dim if value_dim is None else value_dim))

    def backward_flops(self, head_dim: int, value_dim: int | None = None) -> int:
        """Operations of the five products of the backward pass, scores recomputed.

        With `value_dim = head_dim` that is 2.5 times the forward pass, as FlashAttention counts.
        """
        value_dim = head_dim if value_dim is None else value_dim
        return 2 * self.kept * (3 * head_dim + 2 * value_dim)

    def __str__(self) -> str:
        share = self.kept / max(self.total, 1)
        side = " x ".join(str(length) for length in self.block)
        return (
            f"kept      {self.kept:,} of {self.total:,} elements ({share:.2%})\n"
            f"blocks    {self.empty:,} empty, {self.partial:,} partial, {self.full:,} full "
            f"({side}{'' if self.labelled else '; not all of them labelled'})\n"
            f"visited   {self.visited:,} elements\n"
            f"forward   {self.forward_flops(1):,} x head_dim operations\n"
            f"backward  {self.backward_flops(1):,} x head_dim operations"
        )


def cost(mask: Expression, lengths: Lengths, block: int | tuple[int, int]) -> Cost:
    """The cost of attention under a mask; see `Mask.cost`."""
    pair = block_pair(block)
    form = bound(mask)
    extents = extents_of(form, lengths)
    assert extents is not None
    kept = kept_pairs(form, extents)  # first, since it may be refused
    visits = segments(mask, lengths, pair)
    sizes = dependence(form.structure.mask, form, extents)
    empty, partial, full = visits.counts()
    decided = rung_of(form.structure).decides_every_tile(form)
    labelled = decided or empty + partial + full <= _MOST_BLOCKS
    if labelled and not decided:
        found = blocks(mask, lengths, pair)
        empty, partial, full = found.counts()
    # Batch entries and heads that the mask does not tell apart cost the same.
    times = (extents.batch // max(sizes.batch, 1)) * (extents.heads // max(sizes.heads, 1))
    return Cost(
        kept=times * kept,
        total=extents.batch * extents.heads * extents.q_len * extents.kv_len,
        empty=times * empty,
        partial=times * partial,
        full=times * full,
        visited=times * elements_of(visits),
        block=pair,
        labelled=labelled,
    )


def elements_of(visits: Segments, label: int | None = None) -> int:
    """Elements of the tiles of segments, or of those of a label; the last ones may be cut."""
    block_q, block_kv = visits.block
    rows = torch.arange(len(visits.row_start) - 1).repeat_interleave(visits.row_start.diff())
    start = rows % max(visits.shape[2], 1) * block_q
    height = (start + block_q).clamp(max=visits.q_len) - start
    width = (visits.end.long() * block_kv).clamp(max=visits.kv_len) - visits.first.long() * block_kv
    area = height * width
    return int((area if label is None else area[visits.label == label]).sum())
