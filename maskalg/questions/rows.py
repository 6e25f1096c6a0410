"""The rows of a mask: has each a key, how far are its keys, and in which intervals do they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..engine.extents import resolve
from ..engine.normal_form import bound
from ..errors import MaskValueError
from ..formula import nodes
from ..formula.expression import Expression, both, with_formula
from ..formula.nodes import K, Q
from ..schedule.rung import rung_of
from ..schedule.tiling import Tiling
from .cost import kept_keys
from .decide import empty
from .domain import Lengths, reach
from .search import candidates, kept_near

_ELEMENTS_LOOKED_AT: Final = 1 << 28


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
    extents = lengths.extents(form)
    assert extents is not None
    if 0 in (extents.q_len, extents.batch, extents.heads):
        return True
    if extents.kv_len == 0:
        return False
    counts = kept_keys(form, extents, _ELEMENTS_LOOKED_AT)
    return None if counts is None else bool((counts > 0).all())


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
