"""The score terms people use, each next to what the oracle adds to the scaled score.

Tables are float64 and hold what calls of up to `LENGTH` queries and keys, `BATCH` and `HEADS` read;
those that are learned require a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from ..values import biases as term
from ..values.algebra import Bias
from . import oracle, oracle_biases
from .case import BATCH, HEADS
from .oracle_loops import Floats

WINDOW: Final = (3, 5)
LENGTH: Final = WINDOW[0] * WINDOW[1]

_random: Final = np.random.default_rng(22)


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
        """What the oracle adds, `[batch or 1, heads or 1, q_len, kv_len]`."""
        return self.added(*self.tables, q_len=q_len, kv_len=kv_len)


def _real(*shape: int) -> Any:
    return _random.normal(size=shape)


def _positive(*shape: int) -> Any:
    return _random.uniform(0.2, 1.5, size=shape)


_DISTANCES: Final = _random.integers(0, 7, (BATCH, LENGTH, LENGTH))
_HIDDEN: Final = 5


def _fire(*tables: torch.Tensor) -> Bias:
    return term.fire(term.FireParameters(*tables))


def _fire_added(w1: Any, b1: Any, w2: Any, b2: Any, c: Any, threshold: Any, **at: int) -> Floats:
    return oracle_biases.fire((w1, b1), (w2, b2), float(c[0]), float(threshold[0]), **at)


BIASES: Final[dict[str, BiasCase]] = {
    "alibi": BiasCase(term.alibi, oracle.alibi, (_positive(HEADS),)),
    "relative": BiasCase(term.relative, oracle.relative, (_real(HEADS, 9),)),
    "relative in a window": BiasCase(
        lambda table: term.relative_2d(table, WINDOW),
        lambda table, **at: oracle_biases.relative_2d(table, WINDOW, **at),
        (_real(45, HEADS),),
    ),
    "decomposed": BiasCase(
        term.decomposed,
        oracle_biases.decomposed,
        (_real(BATCH, HEADS, LENGTH, WINDOW[0]), _real(BATCH, HEADS, LENGTH, WINDOW[1])),
    ),
    "T5 encoder": BiasCase(
        lambda table: term.t5(table, max_distance=11),
        lambda table, **at: oracle_biases.t5(table, True, 11, **at),
        (_real(12, HEADS),),
    ),
    "T5 decoder": BiasCase(
        lambda table: term.t5(table, bidirectional=False, max_distance=9),
        lambda table, **at: oracle_biases.t5(table, False, 9, **at),
        (_real(8, HEADS),),
    ),
    "Shaw": BiasCase(term.shaw, oracle_biases.shaw, (_real(BATCH, HEADS, LENGTH, 7),)),
    "bias of keys": BiasCase(term.key_bias, oracle_biases.key_bias, (_real(LENGTH),)),
    "bias of keys per batch": BiasCase(
        term.key_bias, oracle_biases.key_bias, (_real(BATCH, 1, LENGTH),)
    ),
    "bias of pairs": BiasCase(
        term.dense_bias, oracle_biases.dense_bias, (_real(BATCH, HEADS, LENGTH, LENGTH),)
    ),
    "bias of pairs per head": BiasCase(
        term.dense_bias, oracle_biases.dense_bias, (_real(HEADS, LENGTH, LENGTH),)
    ),
    "bias of queries": BiasCase(
        term.dense_bias, oracle_biases.dense_bias, (_real(HEADS, LENGTH, 1),)
    ),
    "Sandwich": BiasCase(
        lambda factors: term.sandwich(factors, LENGTH, dim=8),
        lambda factors, **at: oracle_biases.sandwich(factors, 8, **at),
        (_positive(HEADS),),
    ),
    "KERPLE, logarithmic": BiasCase(
        term.kerple_log, oracle_biases.kerple_log, (_positive(HEADS), _positive(HEADS))
    ),
    "KERPLE, power": BiasCase(
        term.kerple_power, oracle_biases.kerple_power, (_positive(HEADS), _positive(HEADS))
    ),
    "FIRE": BiasCase(
        _fire,
        _fire_added,
        (
            _real(_HIDDEN),
            _real(_HIDDEN),
            _real(HEADS, _HIDDEN),
            _real(HEADS),
            _positive(1),
            4.5 * _positive(1),
        ),
    ),
    "Graphormer": BiasCase(
        lambda table: term.graphormer(table, torch.from_numpy(_DISTANCES)),
        lambda table, **at: oracle_biases.graphormer(table, _DISTANCES, **at),
        (_real(7, HEADS),),
    ),
}
