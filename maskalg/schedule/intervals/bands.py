"""How long the rows of a mask are, as far as it is known without a device being asked."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound, Structure, Value
from ...formula.derived import documents_in
from ...proof.proof import prove_structure
from ..tiling import Tiling
from .intervals import key_range, rows_of


def tiles_of_intervals(form: Bound, extents: Extents, side: int) -> float:
    """How many tiles of `side` keys each interval of a row of as many queries has: the mean.

    The mask is one for all batch entries and heads; 0 if it reads a tensor.
    """
    if form.structure.mask_tables:
        return 0
    numbers = tuple([0 if isinstance(value, torch.Tensor) else value for value in form.values])
    return _mean(form.structure, numbers, extents.q_len, extents.kv_len, side)


@lru_cache(maxsize=1024)
def _mean(
    structure: Structure, values: tuple[Value, ...], q_len: int, kv_len: int, side: int
) -> float:
    one = Extents(q_len, kv_len, batch=1, heads=1)
    rows = rows_of(Tiling(Bound(structure, values), one, (side, side), torch.device("cpu")))
    spans = prove_structure(structure).forms.touched
    tiles = [key_range(span, rows).tiles(side) for span in spans]
    found = [float((end - first).sum()) for first, end in tiles]
    return sum(found) / max(len(found) * -(-q_len // side), 1)


def tiles_of_documents(form: Bound, extents: Extents, side: int) -> float:
    """How many tiles of `side` keys a token's document has: the mean, and 0 where it is not known.

    Known are lengths and cumulative lengths on the CPU. Of those on a device, whose number alone is
    known, it is the mean over documents, which is no more.
    """
    least = 0.0
    for slot in form.structure.mask_rows:
        found = documents_in(cast(torch.Tensor, form.values[slot.index]))
        if found is None:
            return 0
        keys = extents.kv_len / max(found.number, 1) if found.keys is None else found.keys
        least = min(least, keys) if least else keys
    return least / side
