"""How many keys are kept: by intervals, boxes and sums; only what a proof leaves is evaluated."""

from __future__ import annotations

from typing import Final

import torch

from .. import errors
from ..engine.evaluate import Environment, device_of, evaluate
from ..engine.extents import Extents, dependence
from ..engine.normal_form import Bound
from ..proof.proof import prove_structure
from ..schedule.block_map import FULL, PARTIAL
from ..schedule.digits.counts import grid_counts
from ..schedule.intervals.marks import is_interval
from ..schedule.runs import run_table, united
from .sums import summed, summed_by_row

_ELEMENTS_AT_ONCE: Final = 1 << 22
_TILE: Final = 128
_NARROWER: Final = 64  # how many times as much tiles leave open as rows, at most
_MOST_EVALUATED: Final = 1 << 32  # a minute or two


def kept_pairs(form: Bound, extents: Extents) -> int:
    """How many elements are kept, of the batch entries and heads that the mask tells apart.

    Elements are evaluated only where neither the intervals of rows nor sums over the clauses of the
    mask tell.

    Raises:
        MaskValueError: more of them than can be evaluated in a minute or two.
    """
    counts = _by_boxes(form, extents)
    if counts is None:
        counts = kept_by_intervals(form, extents)
    if counts is None:
        total = summed(form, extents)
        if total is not None:
            return total
        counts = _by_elements(form, extents, _MOST_EVALUATED)
        if counts is None:
            raise errors.too_many_to_count(extents.q_len, extents.kv_len, _MOST_EVALUATED)
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
    for way in (_by_boxes, kept_by_intervals, summed_by_row):
        counts = way(form, extents)
        if counts is not None:
            return counts
    return _by_elements(form, extents, budget)


def _by_boxes(form: Bound, extents: Extents) -> torch.Tensor | None:
    grid = prove_structure(form.structure).forms.grid
    if grid is None:
        return None
    sizes = dependence(form.structure.mask, form, extents)
    return grid_counts(grid, form.values, extents, (sizes.batch, sizes.heads))


def kept_by_intervals(
    form: Bound, extents: Extents, most_spans: int | None = None
) -> torch.Tensor | None:
    """What `kept_keys` tells where the intervals of one side are exact: how long their union is.

    None elsewhere, and where there are more than `most_spans` of them.
    """
    forms = prove_structure(form.structure).forms
    if forms.grid is not None:
        return None
    for dropped, spans in ((False, forms.touched), (True, forms.unfull)):
        if most_spans is not None and len(spans) > most_spans:
            continue
        if all(is_interval(span, form) for span in spans):
            count = united(spans, form, extents)
            return extents.kv_len - count if dropped else count
    return None


def _by_elements(form: Bound, extents: Extents, budget: int | None) -> torch.Tensor | None:
    if budget is not None and _open(form, extents) > _NARROWER * budget:
        return None
    table = run_table(form, extents, (1, 1))
    length = (table.end - table.first).clamp(min=0)
    count = torch.where(table.label == FULL, length, 0).sum(dim=-1)
    open_runs = ((table.label == PARTIAL) & (length > 0)).nonzero()
    sizes = length[tuple(open_runs.T)]
    if budget is not None and int(sizes.sum()) > budget:
        return None
    first = table.first[tuple(open_runs.T)]
    for rows, starts, widths in _portions(open_runs[:, :3], first, sizes):
        owner = torch.arange(len(rows)).repeat_interleave(widths)
        column = torch.arange(len(owner)) - (widths.cumsum(0) - widths)[owner] + starts[owner]
        kept = _kept(form, rows[owner], column)
        found = torch.zeros(len(rows), dtype=torch.int64).index_add_(0, owner, kept.long())
        count.index_put_(tuple(rows.T), found, accumulate=True)
    return count


def _open(form: Bound, extents: Extents) -> int:
    """How many elements tiles leave open, of which rows alone leave fewer."""
    table = run_table(form, extents, (_TILE, _TILE))
    tiles = (table.end - table.first).clamp(min=0)[table.label == PARTIAL].sum()
    return int(tiles) * _TILE**2


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
    kept = evaluate(form.structure.mask, Environment(indices, form.values))
    return kept.expand(len(column)).cpu()
