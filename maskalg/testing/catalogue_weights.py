"""The weight functions, each next to what the oracle makes of scores.

The cases are the rows of the files in `maskalg/values/weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..values import weights
from ..values.by_hand import Floats
from ..values.discovery import rows
from ..values.weights.weight import Weight


@dataclass(frozen=True, eq=False)
class WeightCase:
    """A weight function built from its learned tensors, and the oracle of what it does to scores.

    Attributes:
        build: the weight, from tensors of the shapes of `tables`.
        weights: what values are multiplied by, from scores `[batch, heads, q_len, kv_len]`, -inf
            where a key is dropped, and from the tables.
        tables: float64 arrays, `[HEADS]` each.
    """

    build: Callable[..., Weight]
    weights: Callable[..., Floats]
    tables: tuple[Any, ...]


WEIGHTS: Final = {name: WeightCase(*row) for name, row in rows(weights.__name__).items()}
