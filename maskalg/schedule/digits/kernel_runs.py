"""Runs of tiles by the digits of positions, of canvases and the like: exact, and made only once.

They follow from numbers and lengths. Made on the host, they stay on the device for all streams.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import torch

from ...engine.extents import Extents, dependence
from ...engine.normal_form import Bound, Structure
from ...engine.recent import Recent
from ...proof.proof import prove_structure
from ..block_map import EMPTY, FULL, PARTIAL
from ..label_runs import runs_of
from .runs import GridRuns, grid_labels, grid_runs

MOST_BY_DIGITS: Final = 1 << 24  # tiles; what is known of each takes 8 bytes

_KNOWN: Final[Recent[Any, torch.Tensor]] = Recent(64)
_OF_GRAPHS: Final[dict[Any, torch.Tensor]] = {}
"""Runs that a captured graph reads. They are never lost, since nothing tells when a graph ends: one
for each mask and lengths that were captured, however often they were."""


def by_digits(structure: Structure) -> bool:
    """Whether digits label each tile, and no tensor has a say."""
    return prove_structure(structure).forms.grid is not None and not structure.mask_tables


def digit_runs(
    form: Bound,
    extents: Extents,
    grain: int,
    of: Literal["queries", "keys"],
    device: torch.device,
) -> torch.Tensor | None:
    """The runs of tiles of `grain` positions, as of `marked_runs`; None where a CUDA graph is
    captured, and no call before has made them."""
    numbers = tuple([value for value in form.values if not isinstance(value, torch.Tensor)])
    sizes = dependence(form.structure.mask, form, extents)
    lengths = (extents.q_len, extents.kv_len, sizes.batch, sizes.heads)
    key = (form.structure, numbers, lengths, grain, of, device)
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    found = _KNOWN.recall(key)
    if not capturing:
        return _KNOWN.keep(key, _made(form, extents, grain, of, device)) if found is None else found
    return found if found is None else _OF_GRAPHS.setdefault(key, found)


def _made(
    form: Bound,
    extents: Extents,
    grain: int,
    of: Literal["queries", "keys"],
    device: torch.device,
) -> torch.Tensor:
    grid = prove_structure(form.structure).forms.grid
    assert grid is not None
    sizes = dependence(form.structure.mask, form, extents)
    found = grid_runs(grid, form.values, extents, (sizes.batch, sizes.heads), (grain, grain))
    rows, columns = -(-extents.q_len // grain), -(-extents.kv_len // grain)
    there = GridRuns(*[part.to(device) for part in (found.row, found.first, found.end, found.full)])
    labels = grid_labels(there, (sizes.batch, sizes.heads, rows, columns), (EMPTY, PARTIAL, FULL))
    runs = runs_of(labels if of == "queries" else labels.mT)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # other streams will read them
    return runs
