"""The score terms people use, each next to what the oracle adds to the scaled score.

The cases are the rows of the files in `maskalg/values/biases`. Tables are float64 and hold what
calls of up to `LENGTH` queries and keys, `BATCH` and `HEADS` read; those that are learned require a
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from ..values import biases
from ..values.algebra import Bias
from ..values.by_hand import WINDOWED, Floats
from ..values.discovery import rows

LENGTH: Final = WINDOWED


@dataclass(frozen=True, eq=False)
class BiasCase:
    """A score term built from its learned tensors, and the oracle of what it adds.

    Attributes:
        build: the term, from tensors of the shapes of `tables`.
        added: what it adds, from the tables and from `q_len=` and `kv_len=`.
        tables: float64 arrays.
    """

    build: Callable[..., Bias]
    added: Callable[..., Floats]
    tables: tuple[Any, ...]

    def tensors(self) -> list[torch.Tensor]:
        """The tables as new tensors that require a gradient."""
        return [torch.from_numpy(table.copy()).requires_grad_() for table in self.tables]

    def matrix(self, q_len: int, kv_len: int) -> Floats:
        """The oracle's bias, `[batch or 1, heads or 1, q_len, kv_len]`."""
        return self.added(*self.tables, q_len=q_len, kv_len=kv_len)


BIASES: Final = {name: BiasCase(*row) for name, row in rows(biases.__name__).items()}
