"""Labels of blocks by a look at every element: exact, and without a proof."""

from __future__ import annotations

from typing import Final

import torch

from ...engine.evaluate import Environment, evaluate
from ...engine.extents import Extents
from ...engine.normal_form import Bound

_AT_ONCE: Final = 1 << 20


def labels_by_elements(
    form: Bound, extents: Extents, block: int, place: tuple[int, int]
) -> torch.Tensor:
    """The labels uint8 `[rows, columns]` of the batch entry and head at `place`."""
    rows, columns = -(-extents.q_len // block), -(-extents.kv_len // block)
    # A block cut by the length repeats its last row or column, which changes no label.
    indices = {
        "batch": torch.tensor(place[0]),
        "head": torch.tensor(place[1]),
        "kv_idx": torch.arange(columns * block).clamp(max=extents.kv_len - 1)[None, :],
    }
    every_row = torch.arange(rows * block).clamp(max=extents.q_len - 1)[:, None]
    strip = max(1, _AT_ONCE // max(columns * block * block, 1)) * block
    labels = []
    for q_idx in every_row.split(strip):
        kept = evaluate(form.structure.mask, Environment({**indices, "q_idx": q_idx}, form.values))
        kept = kept.expand(len(q_idx), columns * block)
        tiles = kept.reshape(len(q_idx) // block, block, columns, block)
        labels.append(tiles.any(3).any(1).to(torch.uint8) + tiles.all(3).all(1).to(torch.uint8))
    return torch.cat(labels)
