"""Labels of all tiles from summaries, for masks whose closed forms only enclose what is kept.

Tables of blocks, trees, spans of images and the like keep tiles that no interval says. Three-valued
summaries of the tensors say of each tile whether something or all of it may be kept, on the
tensors' device and without waiting for it. Kernels look the labels up as runs: their marks.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ..intervals.intervals import rows_of
from ..memory import MEMORY, constant, memorable
from ..tile_runs import marks_of
from ..tiling import Of, Tiling
from .summaries import Summaries

_FEWEST_TILES: Final = 1 << 10  # visiting that many takes less than labelling them
_FEWEST_EACH_TIME: Final = 1 << 14  # likewise, where they are labelled at each call, or one row

MOST_TILES: Final = 1 << 22
"""More are not labelled: memory and time grow with their number."""

MOST_PAIRS: Final = 1 << 30  # entries of a tensor of pairs that are gone through


def summary_labels(tiling: Tiling, of: tuple[int, int] | None = None) -> torch.Tensor:
    """EMPTY=0, PARTIAL=1 or FULL=2 of each tile, where summaries tell; PARTIAL where not.

    uint8 `[batch, heads, rows, columns]`, remembered while the tensors live unchanged. At most
    `MOST_TILES`. `of` are the sides of smaller tiles that the tiles consist of, if these are asked
    for, too.
    """
    form = tiling.form
    return MEMORY.recall(
        ("labels", tiling.key), (form.structure.mask,), form.values, lambda: _labels(tiling, of)
    )


def _labels(tiling: Tiling, of: tuple[int, int] | None) -> torch.Tensor:
    assert math.prod(tiling.shape) <= MOST_TILES
    extents = tiling.extents
    pairs = math.prod(tiling.shape[:2]) * extents.q_len * extents.kv_len <= MOST_PAIRS
    summaries = Summaries(rows_of(tiling), None, tiling.block, pairs, of)
    surely, perhaps = summaries.truth(tiling.form.structure.mask)
    return (surely.to(torch.uint8) + perhaps.to(torch.uint8)).expand(tiling.shape).contiguous()


def summary_marks(tiling: Tiling, of: Of) -> torch.Tensor:
    """The runs of labels from summaries, as `marks_of` makes them; remembered.

    Where labelling takes longer than it saves, every tile is PARTIAL.
    """
    told = [value for value in tiling.form.values if isinstance(value, torch.Tensor)]
    often = memorable(told) and tiling.extents.q_len > tiling.block[0]
    fewest = _FEWEST_TILES if often else _FEWEST_EACH_TIME
    if not fewest < math.prod(tiling.shape) <= MOST_TILES:

        def all_partial() -> tuple[torch.Tensor]:
            ones = torch.ones(tiling.shape, dtype=torch.uint8, device=tiling.device)
            return (marks_of(ones, of, tiling),)

        return constant(("all partial", of, tiling.key), tiling.device, all_partial)[0]

    def runs() -> torch.Tensor:
        return marks_of(summary_labels(tiling), of, tiling)

    key = ("runs", of, tiling.key)
    return MEMORY.recall(key, (tiling.form.structure.mask,), tiling.form.values, runs)
