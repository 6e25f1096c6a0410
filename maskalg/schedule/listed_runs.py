"""Runs of tiles as a list on the kernel's device, for masks whose closed forms only enclose them.

Of a canvas the bounds that a kernel computes by itself enclose whole image rows, where a window
keeps a few pixels of each. Their runs are listed once for each pair of lengths instead, at a grain
that every tile is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import torch

from ..extents import Extents
from ..normalform import Bound, Structure, Value, transposed
from ..proof.proof import prove_structure
from .segments import of_grid

GRAIN: Final = 64
"""Positions of a listed tile, of queries and of keys."""

Of = Literal["queries", "keys"]


@dataclass(frozen=True, eq=False)
class ListedRuns:
    """Row r owns the runs from `row_start[r]` up to `row_start[r + 1]`, of tiles `first..end - 1`;
    int32, disjoint and in order."""

    row_start: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor


def listed(structure: Structure) -> bool:
    """Whether kernels are given a list: the mask is of digits, reads no tensor, and is one for all
    batch entries and heads."""
    return prove_structure(structure).forms.grid is not None and structure.same_for_all_heads


def listed_runs(form: Bound, extents: Extents, of: Of, device: torch.device) -> ListedRuns:
    """The runs of keys of each tile of queries, or the other way round; remembered."""
    numbers = tuple([None if isinstance(v, torch.Tensor) else v for v in form.values])
    return _listed_runs(form.structure, numbers, extents.q_len, extents.kv_len, of, device)


@lru_cache(maxsize=64)
def _listed_runs(
    structure: Structure,
    numbers: tuple[Value | None, ...],
    q_len: int,
    kv_len: int,
    of: Of,
    device: torch.device,
) -> ListedRuns:
    if of == "keys":
        structure, q_len, kv_len = transposed(structure), kv_len, q_len
    grid = prove_structure(structure).forms.grid
    assert grid is not None
    form = Bound(structure, numbers)  # type: ignore[arg-type]  # no tensor is read
    _, found = of_grid(grid, form, Extents(q_len, kv_len, 1, 1), (GRAIN, GRAIN))
    return ListedRuns(*[t.to(device) for t in (found.row_start, found.first, found.end)])
