"""The keys of each query as a few intervals, where the proof gives them exactly."""

from __future__ import annotations

import torch

from ..engine.extents import resolve
from ..engine.normal_form import bound
from ..errors import MaskValueError
from ..formula.expression import Expression
from ..schedule.rung import rung_of
from ..schedule.tiling import Tiling
from .domain import Lengths


def key_intervals(mask: Expression, lengths: Lengths, most: int) -> torch.Tensor:
    """Intervals `[start, end)` of kept keys, int32 `[2, batch, heads, intervals, q_len]`.

    Exactly the mask: a key in one of them is kept, any other is not. Batch and heads have size 1
    where the mask does not tell them apart; queries with fewer intervals than others have empty
    ones. On the device of the mask's tensors.

    Raises:
        MaskValueError: intervals that no proof gives exactly, or more than `most` of a query.
    """
    form = bound(mask)
    extents = resolve(form, lengths.q_len or 0, lengths.kv_len, lengths.batch, lengths.heads)
    rung = rung_of(form.structure)
    if not rung.decides_every_tile(form):
        raise not_decided(mask)
    tiling = Tiling(form, extents, (1, 1))
    runs = rung.runs(tiling)
    count = runs.row_start.diff()
    needed = int(count.max()) if len(count) else 0
    if needed > most:
        raise too_many(mask, needed, most)
    size = max(needed, 1)
    found = torch.zeros((2, len(count), size), dtype=torch.int32)
    row = runs.row_of
    place = torch.arange(len(row)) - runs.row_start[row]
    found[0, row, place], found[1, row, place] = runs.first, runs.end
    by_row = found.view(2, *runs.shape, size)
    return by_row.transpose(3, 4).contiguous().to(tiling.device)


def not_decided(mask: Expression) -> MaskValueError:
    return MaskValueError(
        f'to_mask_mod(form="intervals"): the proof of {mask} gives no exact intervals of keys '
        "(see mask.prove()). Write mask.to_mask_mod() for the formula itself."
    )


def too_many(mask: Expression, needed: int, most: int) -> MaskValueError:
    return MaskValueError(
        f'to_mask_mod(form="intervals"): a query of {mask} keeps {needed} intervals of keys, and '
        f"{most} are the most. Write mask.to_mask_mod(), or most={needed}."
    )
