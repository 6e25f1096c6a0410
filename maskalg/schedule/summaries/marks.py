"""Marks of tiles from summaries: what kernels look up where spans only enclose what is kept."""

from __future__ import annotations

import math
from typing import Final, Literal

import torch

from ..memory import MEMORY, constant, memorable
from ..tile_runs import marked_runs_of
from ..tiling import Tiling
from .labels import MOST_TILES, summary_labels

_FEWEST_TILES: Final = 1 << 10  # visiting that many takes less than labelling them
_FEWEST_EACH_TIME: Final = 1 << 14  # likewise, where they are labelled at each call, or one row


def summary_marks(tiling: Tiling, of: Literal["queries", "keys"]) -> torch.Tensor:
    """The runs of labels from summaries, as `marked_runs_of` makes them; remembered.

    Where labelling takes longer than it saves, every tile is PARTIAL.
    """
    told = [value for value in tiling.form.values if isinstance(value, torch.Tensor)]
    often = memorable(told) and tiling.extents.q_len > tiling.block[0]
    fewest = _FEWEST_TILES if often else _FEWEST_EACH_TIME
    batch, heads, rows, columns = tiling.shape
    if not fewest < math.prod(tiling.shape) <= MOST_TILES:
        shape = (batch, heads, rows, columns) if of == "queries" else (batch, heads, columns, rows)

        def all_partial() -> tuple[torch.Tensor]:
            ones = torch.ones(shape, dtype=torch.uint8, device=tiling.device)
            return (marked_runs_of(ones),)

        return constant(("all partial", shape), tiling.device, all_partial)[0]

    def runs() -> torch.Tensor:
        labels = summary_labels(tiling)
        return marked_runs_of(labels if of == "queries" else labels.mT)

    key = ("runs", of, tiling.key)
    return MEMORY.recall(key, (tiling.form.structure.mask,), tiling.form.values, runs)
