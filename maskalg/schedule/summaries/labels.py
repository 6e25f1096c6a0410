"""Labels of all tiles from summaries, for masks whose closed forms only enclose what is kept.

Tables of blocks, trees, spans of images and the like keep tiles that no interval says. Three-valued
summaries of the tensors say of each tile whether something or all of it may be kept, on the
tensors' device and without waiting for it.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ..intervals.intervals import rows_of
from ..memory import MEMORY
from ..tiling import Tiling
from .summaries import Summaries

MOST_TILES: Final = 1 << 22
"""More are not labelled: memory and time grow with their number."""

_MOST_PAIRS: Final = 1 << 30  # entries of a tensor of pairs that are gone through


def summary_labels(tiling: Tiling) -> torch.Tensor:
    """EMPTY=0, PARTIAL=1 or FULL=2 of each tile, where summaries tell; PARTIAL where not.

    uint8 `[batch, heads, rows, columns]`, remembered while the tensors live unchanged. At most
    `MOST_TILES`.
    """
    form = tiling.form
    return MEMORY.recall(
        ("labels", tiling.key), (form.structure.mask,), form.values, lambda: _labels(tiling)
    )


def _labels(tiling: Tiling) -> torch.Tensor:
    assert math.prod(tiling.shape) <= MOST_TILES
    extents = tiling.extents
    pairs = math.prod(tiling.shape[:2]) * extents.q_len * extents.kv_len <= _MOST_PAIRS
    summaries = Summaries(rows_of(tiling), None, tiling.block, pairs)
    surely, perhaps = summaries.truth(tiling.form.structure.mask)
    return (surely.to(torch.uint8) + perhaps.to(torch.uint8)).expand(tiling.shape).contiguous()
