"""Labels of all tiles from summaries, for masks whose closed forms only enclose what is kept.

Tables of blocks, trees, spans of images and the like keep tiles that no interval says. Three-valued
summaries of the tensors say of each tile whether something or all of it may be kept, on the
tensors' device and without waiting for it.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from ...engine.extents import Extents, dependence
from ...engine.normal_form import Bound, Structure
from ...proof.proof import prove_structure
from ..intervals.intervals import rows_of
from ..memory import MEMORY
from .summaries import Summaries

MOST_TILES: Final = 1 << 22
"""More are not labelled: memory and time grow with their number."""

_MOST_PAIRS: Final = 1 << 30  # entries of a tensor of pairs that are gone through

Counts = tuple[int, int, int, int]  # of batch entries, heads, rows and columns


def summarised(structure: Structure) -> bool:
    """Whether summaries tell more than closed forms: the mask reads tensors, and no closed form
    decides it."""
    forms = prove_structure(structure).forms
    decided = forms.grid is not None or forms.rung == "closed form"
    opaque = any(node.op == "opaque" for node in structure.mask.walk())
    return structure.mask_tables and not decided and not opaque


def tile_counts(form: Bound, extents: Extents, block: tuple[int, int]) -> Counts:
    """Batch entries and heads that the mask tells apart, rows and columns of tiles."""
    sizes = dependence(form.structure.mask, form, extents)
    rows, columns = -(-extents.q_len // block[0]), -(-extents.kv_len // block[1])
    return sizes.batch, sizes.heads, rows, columns


def summary_labels(
    form: Bound, extents: Extents, block: tuple[int, int], device: torch.device
) -> torch.Tensor:
    """EMPTY=0, PARTIAL=1 or FULL=2 of each tile, where summaries tell; PARTIAL where not.

    uint8 `[batch, heads, rows, columns]`, remembered while the tensors live unchanged. At most
    `MOST_TILES`.
    """
    counts = tile_counts(form, extents, block)
    key = ("labels", block, counts, extents.q_len, extents.kv_len, device)
    return MEMORY.recall(
        key,
        (form.structure.mask,),
        form.values,
        lambda: _labels(form, extents, block, counts, device),
    )


def _labels(
    form: Bound, extents: Extents, block: tuple[int, int], counts: Counts, device: torch.device
) -> torch.Tensor:
    assert math.prod(counts) <= MOST_TILES
    rows = rows_of(form.values, extents, counts[:2], block[0], device)
    pairs = math.prod(counts[:2]) * extents.q_len * extents.kv_len <= _MOST_PAIRS
    surely, perhaps = Summaries(rows, None, block, pairs).truth(form.structure.mask)
    return (surely.to(torch.uint8) + perhaps.to(torch.uint8)).expand(counts).contiguous()
