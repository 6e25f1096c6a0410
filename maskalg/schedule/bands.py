"""How long the rows of a mask of numbers are, without its pairs or a device being asked."""

from __future__ import annotations

from functools import lru_cache

import torch

from ..extents import Extents
from ..normalform import Bound, Structure, Value
from ..proof.proof import prove_structure
from .intervals import key_range, rows_of


def tiles_of_intervals(form: Bound, extents: Extents, side: int) -> float:
    """How many tiles of `side` keys each interval of a row of as many queries has: the mean.

    The mask reads no tensor, and is one for all batch entries and heads.
    """
    numbers = tuple([0 if isinstance(value, torch.Tensor) else value for value in form.values])
    return _mean(form.structure, numbers, extents.q_len, extents.kv_len, side)


@lru_cache(maxsize=1024)
def _mean(
    structure: Structure, values: tuple[Value, ...], q_len: int, kv_len: int, side: int
) -> float:
    one = Extents(q_len, kv_len, batch=1, heads=1)
    rows = rows_of(values, one, (1, 1), side, torch.device("cpu"))
    spans = prove_structure(structure).forms.touched
    tiles = [key_range(span, rows).tiles(side) for span in spans]
    found = [float((end - first).sum()) for first, end in tiles]
    return sum(found) / max(len(found) * -(-q_len // side), 1)
