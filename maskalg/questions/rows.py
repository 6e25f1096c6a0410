"""The rows of a mask: whether each has a key, how far its keys are, and their intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

import torch

from ..engine.extents import Lengths, resolve
from ..engine.normal_form import Bound, bound, transposed
from ..errors import MaskValueError
from ..export.elements import edges
from ..formula import nodes
from ..formula.expression import Expression, both, with_formula
from ..formula.nodes import K, Q
from ..schedule.rung import rung_of
from ..schedule.summaries.labels import elements
from ..schedule.tile_runs import FULL, TileRuns
from ..schedule.tiling import Tiling
from .cost import kept_keys
from .decide import empty
from .domain import extents_of, reach
from .search import candidates, kept_near

_ELEMENTS_LOOKED_AT: Final = 1 << 28
_MOST_ELEMENTS: Final = 1 << 34  # whose intervals are looked for, in a minute or two
_MOST_FOUND: Final = 1 << 26  # intervals that are found element by element
_MOST_ENDS: Final = 1 << 30  # of intervals that are listed, of four bytes
_QUERIES_AT_ONCE: Final = 1 << 13  # whose intervals are written together
_SIDE: Final = 128  # of tiles whose elements are looked at


class KeptRuns(NamedTuple):
    """Intervals of kept keys of each query: exactly those that a mask keeps.

    Attributes:
        runs: keys `first <= key < end` of each row, FULL, on the host; a row is that of a query,
            and in it intervals ascend and do not touch.
        keys: how many keys there are.
        device: where the tensors of the mask are.
    """

    runs: TileRuns
    keys: int
    device: torch.device


@dataclass(frozen=True)
class Bandwidth:
    """How far kept keys lie from their query: `-left <= kv_idx - q_idx <= right`.

    None for a side without a proved limit. Some pair reaches each limit, so it is the smallest; it
    is negative if every key lies on the other side.
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


def kept_runs(mask: Expression, lengths: Lengths, by_key: bool = False) -> KeptRuns:
    """The intervals of kept keys of each query, or of kept queries of each key, `by_key`.

    Raises:
        MaskValueError: too many elements to evaluate, if the proof gives no intervals.
    """
    form = bound(mask)
    extents = resolve(form, replace(lengths, q_len=lengths.q_len or 0))
    if by_key:
        form = Bound(transposed(form.structure), form.values)
        extents = replace(extents, q_len=extents.kv_len, kv_len=extents.q_len)
    tiling = Tiling(form, extents, (1, 1))
    rung = rung_of(form.structure)
    exact = rung.decides_every_tile(form)
    runs = rung.runs(tiling) if exact else _looked_at(mask, tiling)
    return KeptRuns(runs, tiling.shape[3], tiling.device)


def key_intervals(mask: Expression, lengths: Lengths, most: int | None) -> torch.Tensor:
    """Intervals `[start, end)` of kept keys, int32 `[2, batch, heads, intervals, q_len]`.

    The intervals hold exactly the kept keys, ascend and do not touch. Batch and heads have size 1
    if the mask does not tell them apart; queries with fewer intervals than others have empty
    intervals at key 0 after them. On the device of the mask's tensors.

    Raises:
        MaskValueError: more than `most` intervals of a query, or, if the proof gives no intervals,
            too many elements to evaluate.
    """
    runs, _, device = kept_runs(mask, lengths)
    batch, heads, q_len = runs.shape
    count = runs.row_start.diff()
    needed = int(count.max()) if len(count) else 0
    if most is not None and needed > most:
        raise MaskValueError(
            f'to_mask_mod(form="intervals"): a query of {mask} keeps {needed} intervals of keys, '
            f"and {most} are the most. Write mask.to_mask_mod(), or most={needed}."
        )
    size = max(needed, 1)
    if 2 * len(count) * size > _MOST_ENDS:
        raise MaskValueError(
            f"{len(count):,} rows of up to {needed:,} intervals of keys, those of {mask}, are too "
            "many to list. Write mask.to_mask_mod() for the formula itself."
        )
    found = torch.zeros((2, batch * heads, size, q_len), dtype=torch.int32)
    number = torch.arange(size)
    for member, begin in product(range(batch * heads), range(0, q_len, _QUERIES_AT_ONCE)):
        # Written in rows first, and then in columns, while they are in the cache.
        queries = slice(begin, min(begin + _QUERIES_AT_ONCE, q_len))
        at = slice(member * q_len + queries.start, member * q_len + queries.stop)
        used = number < count[at, None]
        own = slice(int(runs.row_start[at.start]), int(runs.row_start[at.stop]))
        for side, ends in enumerate((runs.first[own], runs.end[own])):
            rows = torch.zeros(used.shape, dtype=torch.int32)
            found[side, member, :, queries] = rows.masked_scatter_(used, ends).T
    return found.view(2, batch, heads, size, q_len).to(device)


def _looked_at(mask: Expression, tiling: Tiling) -> TileRuns:
    """The intervals of keys by tiles: full ones as they are, partial ones element by element."""
    form, extents = tiling.form, tiling.extents
    _, heads, q_len, kv_len = tiling.shape
    block = (min(max(q_len, 1), _SIDE), min(max(kv_len, 1), _SIDE))
    runs = rung_of(form.structure).runs(replace(tiling, block=block))
    full = runs.label == FULL
    tiles = runs.tiles[~full]
    count, whole = int(tiles.sum()), int(full.sum())
    if (count + whole) * block[0] * block[1] > _MOST_ELEMENTS:
        raise MaskValueError(
            f"The proof of {mask} gives no exact intervals of keys (see mask.prove()), and "
            f"{count + whole:,} tiles of {block[0]} x {block[1]} elements are too many to look at. "
            "Write mask.to_mask_mod() for the formula itself, or fewer queries with "
            "mask.shift(q=…)."
        )
    found = []

    def note(at: torch.Tensor, query: torch.Tensor, first: torch.Tensor, end: torch.Tensor) -> None:
        """Intervals of a query of each tile at `[n, 3]` batch entries, heads and rows."""
        q_idx = at[:, 2] * block[0] + query
        row = (at[:, 0] * heads + at[:, 1]) * q_len + q_idx
        columns = torch.stack([row, first.clamp(max=kv_len), end.clamp(max=kv_len)])
        found.append(columns[:, (q_idx < q_len) & (columns[1] < columns[2])])

    ends = [(x[full] * block[1]).repeat_interleave(block[0]) for x in (runs.first, runs.end)]
    query = torch.arange(block[0]).repeat(whole)
    note(runs.places[full].repeat_interleave(block[0], dim=0), query, *ends)
    turn = torch.arange(count) - (tiles.cumsum(0) - tiles).repeat_interleave(tiles)
    column = runs.first[~full].repeat_interleave(tiles) + turn
    places = torch.cat([runs.places[~full].repeat_interleave(tiles, dim=0), column[:, None]], dim=1)
    begin = 0
    for kept in elements(form, places.to(tiling.device), block, extents):
        tile, query, key = edges(kept).cpu().unbind(dim=1)
        at = places[begin + tile]
        key = at[:, 3] * block[1] + key
        note(at[::2], query[::2], key[::2], key[1::2])
        begin += len(kept)
        if sum(part.shape[1] for part in found) > _MOST_FOUND:
            raise MaskValueError(
                f"{mask} keeps more than {_MOST_FOUND:,} intervals of keys, too many to list. "
                "Write mask.to_mask_mod() for the formula itself, or fewer queries with "
                "mask.shift(q=…)."
            )
    row, first, end = torch.cat(found, dim=1)
    order = (row * kv_len + first).argsort()
    row, first, end = row[order], first[order], end[order]
    return TileRuns.of(row, first, end, torch.full_like(row, FULL), tiling.shape[:3])
