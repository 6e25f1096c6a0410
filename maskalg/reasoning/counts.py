"""How many keys each query keeps, summed over intervals; only what a proof leaves is evaluated."""

from __future__ import annotations

from typing import Final

import torch

from ..evaluate import Environment, device_of, evaluate
from ..extents import Extents
from ..normalform import Bound
from ..schedule.block_map import FULL, PARTIAL
from ..schedule.runs import run_table

_ELEMENTS_AT_ONCE: Final = 1 << 22


def kept_keys(form: Bound, extents: Extents, budget: int | None = None) -> torch.Tensor | None:
    """The number of keys each query keeps, int64 `[batch, heads, q_len]`.

    Batch and heads are 1 where the mask does not depend on them. Where the closed forms are exact
    no element is evaluated, whatever the length.

    Args:
        form: the mask.
        extents: lengths, batch and heads.
        budget: most elements to evaluate; None means all. Past it the answer is None.
    """
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
