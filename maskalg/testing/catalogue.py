"""Masks, biases and weights, each next to its oracle: `CATALOGUE`, `BIASES`, `WEIGHTS`.

`CATALOGUE["prefix LM"]` is a mask and the oracle's matrix of it. First come the rows of the files
in `maskalg/values/masks`, then compositions of them. Tensors over positions hold `ENTRIES`
positions, so lengths up to `LONGEST` fit every mask, also when it is shifted a few times.

`BIASES` are the rows of `maskalg/values/biases`, each next to what the oracle adds to the scaled
score. Tables are float64 and large enough for calls of up to `LENGTH` queries and keys, `BATCH` and
`HEADS`; learned ones require a gradient. `WEIGHTS` are the rows of `maskalg/values/weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from ..values import biases, index, masks, weights
from ..values.algebra import Bias
from ..values.by_hand import BATCH_SIZE, ENTRIES, HEADS, IDS, LONGEST, WINDOWED, Bools, Floats
from ..values.discovery import rows
from ..values.weights.weight import Weight
from . import oracle
from .case import Case, grid, where

_random: Final = np.random.default_rng(20)
_KINDS: Final = _random.integers(0, 3, ENTRIES)

_ROWS: Final = {name: Case.by_hand(*row) for name, row in rows(masks.__name__).items()}


def _of(name: str, *args: Any) -> Case:
    """A mask of the package with these arguments, next to the oracle's."""
    return Case.by_hand(getattr(masks, name)(*args), partial(getattr(oracle, name), *args))


def _of_head(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> Bools:
    """The matrix of a mask that keeps all pairs of even heads."""
    even = np.arange(HEADS).reshape(1, -1, 1, 1) % 2 == 0
    return np.broadcast_to(even, (1, HEADS, q_len, kv_len))


_causal, _documents, _dense = (_ROWS[name] for name in ("causal", "document", "dense"))
_spans: Final = _ROWS["image spans"]
_global: Final = _of("global_tokens", _random.random(ENTRIES) < 0.08)
_order: Final = [int(place) % LONGEST for place in _random.permutation(ENTRIES)]
_blocks: Final = _random.random((8, 8)) < 0.2
_even_heads: Final = Case(index.head % 2 == 0, _of_head)

CATALOGUE: Final[dict[str, Case]] = {
    **_ROWS,
    "every third key from the next one": Case(
        (index.kv_idx - index.q_idx + 1) % 3 == 0,
        lambda *at: (grid(*at)[1] - grid(*at)[0] + 1) % 3 == 0,
    ),
    "one remainder of four": Case(
        (index.q_idx - index.kv_idx + 1) % 4 == 2,
        lambda *at: (grid(*at)[0] - grid(*at)[1] + 1) % 4 == 2,
    ),
    "kinds of keys": Case(
        index.table(_KINDS, "kinds")[index.kv_idx] == 1,
        lambda *at: np.broadcast_to(_KINDS[grid(*at)[1]] == 1, (1, 1, *at[:2])),
        over_positions=True,
    ),
    "window that grows with the head": Case(
        abs(index.q_idx - index.kv_idx) <= 2 * index.head + 1,
        lambda *at: abs(grid(*at)[0] - grid(*at)[1]) <= 2 * grid(*at)[3] + 1,
    ),
    "causal sliding": _causal & _of("sliding", 7),
    "causal sliding per head": _causal
    & Case.by_hand(
        masks.sliding(np.array([6, 2, 13])),
        partial(oracle.sliding_per_head, np.array([6, 2, 13])),
    ),
    "sinks and window": _causal & (_of("sliding", 6) | _of("prefix", 3)),
    "global and window": _of("sliding", 4) | _of("prefix", 2) | _of("prefix", 2).shift(kv=1),
    "prefix LM": _causal | _of("prefix", 9),
    "prefix LM per batch": _causal | _of("padding", (4, 21)),
    "causal documents": _causal & _documents,
    "causal sliding documents": _causal & _of("sliding", 6) & _documents,
    "causal documents that recur": _causal & _ROWS["document that recurs"],
    "documents or a window": _documents | _of("sliding", 2),
    "other documents": ~_documents & _causal,
    "padded causal": _causal
    & Case.by_hand(
        masks.padding((30, 12), queries=True), partial(oracle.padding, (30, 12), queries=True)
    ),
    "chunked causal": _causal & _of("chunked", 8),
    "chunks and a window": _of("block_causal", 5) & _of("window", 12, None),
    "dilated sliding": _of("sliding", 9) & _of("dilated", 2),
    "strided": _causal & (_of("sliding", 4) | _of("dilated", 4)),
    "band ring": _of("sliding", 9) & ~_of("sliding", 4),
    "causal below a dense mask": _causal & _dense,
    "decoding step": (_causal & _of("sliding", 12)).shift(q=15),
    "decoding step by a tensor": (_causal & _documents).shift(q=9, as_tensor=True),
    "decoding step per batch": (_causal & _of("sliding", 8)).shift_each([3, 20]),
    "ring": (_causal & (_of("sliding", 12) | _of("prefix", 2))).at(
        [min(20 + i, LONGEST - 1) for i in range(ENTRIES)],
        [20 - (20 - i) % 25 for i in range(ENTRIES)],
    ),
    "window over rows in another order": (_causal & _of("sliding", 9)).at(_order, _order),
    "causal neighborhood": _causal & _of("neighborhood", (6, 7), 3),
    "heads within frames and across them": where(
        _even_heads, _of("spatial", 7, 1), _of("temporal", 7, 1)
    ),
    "heads of two kinds": where(_even_heads, _of("sliding", 3), _causal),
    "Longformer": _of("sliding", 4) | _global,
    "causal Longformer": _causal & (_of("sliding", 4) | _global),
    "Transfusion": _causal | _spans,
    "Transfusion in documents": (_causal | _spans) & _of("document", IDS // 2),
    "causal block table": _causal
    & _of("block_table", _random.random((BATCH_SIZE, 1, 8, 11)) < 0.5, (9, 6)),
    "BigBird": _of("sliding", 4)
    | _global
    | Case.by_hand(masks.block_table(_blocks, 8), partial(oracle.block_table, _blocks, (8, 8))),
}


LENGTH: Final = WINDOWED


@dataclass(frozen=True, eq=False)
class BiasCase:
    """A score term built from its learned tensors, and the oracle of its numbers.

    Attributes:
        build: the term, from tensors of the shapes of `tables`.
        added: the numbers it adds, from the tables and from `q_len=` and `kv_len=`.
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


@dataclass(frozen=True, eq=False)
class WeightCase:
    """A weight function built from its learned tensors, and the oracle of its weights.

    Attributes:
        build: the weight, from tensors of the shapes of `tables`.
        weights: the factors of the values, from scores `[batch, heads, q_len, kv_len]`, -inf where
            a key is dropped, and from the tables.
        tables: float64 arrays, `[HEADS]` each.
    """

    build: Callable[..., Weight]
    weights: Callable[..., Floats]
    tables: tuple[Any, ...]


WEIGHTS: Final = {name: WeightCase(*row) for name, row in rows(weights.__name__).items()}
