"""A kept pair of a mask, found by evaluation, which shows that a statement about masks is false."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import torch

from ..engine.evaluate import device_of, grid, kept_at
from ..engine.extents import Extents, dependence
from ..engine.normal_form import Bound
from ..schedule.rung import rung_of
from ..schedule.summaries.labels import elements
from ..schedule.tile_runs import FULL
from ..schedule.tiling import Tiling
from .domain import Reach

ELEMENTS_LOOKED_AT: Final = 1 << 26
_BLOCK: Final = 128
_TILES_AT_ONCE: Final = 64
_NEAR: Final = 24
_CANDIDATES: Final = 384


class Place(NamedTuple):
    """An element of the attention matrix."""

    batch: int
    head: int
    q_idx: int
    kv_idx: int


@dataclass(frozen=True)
class Search:
    """A kept pair, or None; `complete` says that None means there is none."""

    found: Place | None
    complete: bool


def search(form: Bound, extents: Extents, elements: int = ELEMENTS_LOOKED_AT) -> Search:
    """A kept pair within lengths, searched in the tiles that are not proved empty.

    At most `elements` elements are evaluated.
    """
    if 0 in (extents.q_len, extents.kv_len, extents.batch, extents.heads):
        return Search(None, True)
    runs = rung_of(form.structure).runs(Tiling(form, extents, (_BLOCK, _BLOCK)))
    owners = runs.places
    full = (runs.label == FULL).nonzero()
    if len(full):
        run = int(full[0])
        batch, head, row = owners[run].tolist()
        return Search(Place(batch, head, row * _BLOCK, int(runs.first[run]) * _BLOCK), True)
    past = runs.tiles.cumsum(0)
    count = int(past[-1]) if len(past) else 0
    most = max(1, elements // _BLOCK**2)
    # All of them, or as many as may be looked at, evenly spread.
    chosen = torch.arange(min(count, most)) * count // max(min(count, most), 1)
    run_of = torch.searchsorted(past, chosen, right=True)
    ahead = past[run_of] - chosen  # tiles of the run from this one on
    columns = runs.end[run_of] - ahead
    places = torch.cat([owners[run_of], columns[:, None]], dim=1)
    found = _kept_in_tiles(form, places, extents)
    return Search(found, found is not None or count <= most)


def search_near(form: Bound, within: Reach) -> Search:
    """A kept pair among small positions and those near the numbers of the formula."""
    places = kept_near(form, within, candidates(form))
    if not len(places):
        return Search(None, within.whole and 0 in (within.extents.q_len, within.extents.kv_len))
    return Search(Place(*places[0].tolist()), True)


def kept_near(form: Bound, within: Reach, positions: list[int]) -> torch.Tensor:
    """The kept pairs at some positions, int64 `[pairs, 4]`: batch, head, query and key."""
    extents = within.extents
    sizes = dependence(form.structure.mask, form, extents)
    device = device_of(form)
    q_idx = torch.tensor([p for p in positions if p < extents.q_len], device=device).long()
    kv_idx = torch.tensor([p for p in positions if p < extents.kv_len], device=device).long()
    indices = grid(sizes.batch, sizes.heads, (0, 1), (0, 1), device)
    indices |= {"q_idx": q_idx.view(1, 1, -1, 1), "kv_idx": kv_idx.view(1, 1, 1, -1)}
    kept = kept_at(form, indices)
    batch, head, row, column = kept.expand(
        sizes.batch, sizes.heads, len(q_idx), len(kv_idx)
    ).nonzero(as_tuple=True)
    return torch.stack([batch, head, q_idx[row], kv_idx[column]], dim=1).cpu()


def candidates(form: Bound) -> list[int]:
    """Positions where the formula may change: near zero, its numbers, and their sums."""
    numbers = {abs(value) for value in form.values if isinstance(value, int)}
    for node in form.structure.mask.walk():
        if node.op == "const" and node.kind == "int":
            numbers.add(abs(cast(int, node.data)))
    for _, tensor in form.tensors():
        numbers |= set(tensor.shape)
        if tensor.numel() <= _NEAR and not tensor.is_floating_point():
            numbers |= {abs(int(entry)) for entry in tensor.flatten().tolist()}
    sums = sorted(numbers | {a + b for a in numbers for b in numbers})
    near = [number + step for number in sums for step in (0, -1, 1, -2, 2)]
    ordered = dict.fromkeys([*range(_NEAR), *(place for place in near if place >= 0)])
    return sorted(list(ordered)[:_CANDIDATES])


def _kept_in_tiles(form: Bound, places: torch.Tensor, extents: Extents) -> Place | None:
    """The first kept pair of the tiles at `places` `[tiles, 4]`."""
    for part in places.to(device_of(form)).split(_TILES_AT_ONCE):
        (kept,) = elements(form, part, (_BLOCK, _BLOCK), extents)
        found = kept.nonzero()
        if len(found):
            tile, row, column = found[0].tolist()
            batch, head, q_tile, kv_tile = part[tile].tolist()
            # A tile cut by the length repeats its last row or column.
            q_idx = min(q_tile * _BLOCK + row, extents.q_len - 1)
            return Place(batch, head, q_idx, min(kv_tile * _BLOCK + column, extents.kv_len - 1))
    return None
