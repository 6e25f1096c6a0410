"""The rows of a mask: has each a key, how far are its keys, and in which intervals do they lie."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import Final

import torch

from ..engine.extents import Extents, Lengths, resolve
from ..engine.normal_form import Bound, bound
from ..errors import MaskValueError
from ..export.elements import Elements, edges
from ..formula import nodes
from ..formula.expression import Expression, both, with_formula
from ..formula.nodes import K, Q
from ..schedule.rung import rung_of
from ..schedule.tiling import Tiling
from .cost import kept_keys
from .decide import empty
from .domain import extents_of, reach
from .search import candidates, kept_near

_ELEMENTS_LOOKED_AT: Final = 1 << 28
_MOST_ELEMENTS: Final = 1 << 34  # whose intervals are looked for, in a minute or two

Edges = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # rows, ascending; first keys; ends


@dataclass(frozen=True)
class Bandwidth:
    """How far kept keys lie from their query: `-left <= kv_idx - q_idx <= right`.

    None where no limit was proved. A limit is reached by some pair, so it is the smallest one;
    it is negative where every key lies on the other side.
    """

    left: int | None
    right: int | None


def bandwidth(mask: Expression) -> Bandwidth:
    """The band that holds every kept pair; see `Mask.bandwidth`."""
    form = bound(mask)
    places = kept_near(form, reach(form, Lengths()), candidates(form))
    if not len(places):
        limit = 0 if empty(mask, Lengths(), for_all=False) else None
        return Bandwidth(limit, limit)
    ahead = places[:, 3] - places[:, 2]
    left, right = int(-ahead.min()), int(ahead.max())
    beyond = (
        nodes.gt(nodes.subtract(Q, K), nodes.const(left)),
        nodes.gt(nodes.subtract(K, Q), nodes.const(right)),
    )
    further = (both(mask, with_formula(mask, far)) for far in beyond)
    holds = [empty(pairs, Lengths(), for_all=False) for pairs in further]
    return Bandwidth(left if holds[0] else None, right if holds[1] else None)


def rows_have_a_key(mask: Expression, lengths: Lengths) -> bool | None:
    """Whether each query keeps a key; see `Mask.rows_have_a_key`."""
    form = bound(mask)
    extents = extents_of(form, lengths)
    assert extents is not None
    if 0 in (extents.q_len, extents.batch, extents.heads):
        return True
    if extents.kv_len == 0:
        return False
    counts = kept_keys(form, extents, _ELEMENTS_LOOKED_AT)
    return None if counts is None else bool((counts > 0).all())


def key_intervals(mask: Expression, lengths: Lengths, most: int | None) -> torch.Tensor:
    """Intervals `[start, end)` of kept keys, int32 `[2, batch, heads, intervals, q_len]`.

    Exactly the mask: a key in one of them is kept, any other is not. They ascend and do not touch.
    Batch and heads have size 1 where the mask does not tell them apart; queries with fewer
    intervals than others have empty ones behind, of key 0. On the device of the mask's tensors.

    Raises:
        MaskValueError: more than `most` of a query, or elements too many to look at where the proof
            does not give the intervals.
    """
    form = bound(mask)
    extents = resolve(form, replace(lengths, q_len=lengths.q_len or 0))
    tiling = Tiling(form, extents, (1, 1))
    shape = tiling.shape[:3]
    if rung_of(form.structure).decides_every_tile(form):
        row, first, end = _proved(form, tiling)
    else:
        if math.prod(tiling.shape) > _MOST_ELEMENTS:
            raise MaskValueError(
                f"The proof of {mask} gives no exact intervals of keys (see mask.prove()), and "
                f"{extents.q_len:,} x {extents.kv_len:,} elements are too many to look at. Write "
                "mask.to_mask_mod() for the formula itself, or fewer queries with mask.shift(q=…)."
            )
        row, first, end = _looked_at(mask, extents, shape)
    count = torch.bincount(row, minlength=math.prod(shape))
    needed = int(count.max()) if len(count) else 0
    if most is not None and needed > most:
        raise MaskValueError(
            f'to_mask_mod(form="intervals"): a query of {mask} keeps {needed} intervals of keys, '
            f"and {most} are the most. Write mask.to_mask_mod(), or most={needed}."
        )
    size = max(needed, 1)
    found = torch.zeros((2, len(count), size), dtype=torch.int32)
    place = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    found[0, row, place], found[1, row, place] = first.int(), end.int()
    by_row = found.view(2, *shape, size)
    return by_row.transpose(3, 4).contiguous().to(tiling.device)


def _proved(form: Bound, tiling: Tiling) -> Edges:
    runs = rung_of(form.structure).runs(tiling)
    return runs.row_of, runs.first, runs.end


def _looked_at(mask: Expression, extents: Extents, shape: tuple[int, int, int]) -> Edges:
    parts = [torch.zeros((0, 3), dtype=torch.int64)]
    for begin, kept in Elements(mask, Lengths(*astuple(extents))).by_rows():
        batch, head, query, key = edges(kept).cpu().unbind(dim=1)
        row = (batch * shape[1] + head) * shape[2] + begin + query
        parts.append(torch.stack([row[::2], key[::2], key[1::2]], dim=1))
    found = torch.cat(parts)
    row, first, end = found[found[:, 0].argsort(stable=True)].unbind(dim=1)
    return row, first, end
