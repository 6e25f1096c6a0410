"""The masks people use, each next to the oracle's matrix of it: `CATALOGUE["prefix LM"]`.

Tensors over positions hold `ENTRIES` positions, so lengths up to `LONGEST` fit every mask, also
when it is shifted a few times.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from ..values import algebra, index
from ..values import masks as atom
from . import oracle, oracle_grids
from .case import BATCH, ENTRIES, HEADS, LONGEST, Case, grid, matrix_of, where
from .catalogue_tokens import TOKENS

_random: Final = np.random.default_rng(20)

IDS: Final = np.repeat(np.arange(7), (9, 5, 1, 14, 8, 16, 11))
CONTIGUOUS: Final = np.array([4, -2, 9, 0, 7, 3, 1])[IDS]
RECURRING: Final = _random.integers(-1, 3, ENTRIES)
OTHER_IDS: Final = np.repeat(np.arange(7), (4, 9, 3, 15, 2, 20, 11))
PER_BATCH: Final = np.stack([IDS, RECURRING])
DENSE: Final = (_random.random((BATCH, HEADS, 8, 8)) < 0.5).repeat(8, -1).repeat(8, -2)
KINDS: Final = _random.integers(0, 3, ENTRIES)


def _document(ids: np.ndarray, kv_ids: np.ndarray | None = None) -> Case:  # type: ignore[type-arg]
    tensor = None if kv_ids is None else torch.from_numpy(kv_ids.copy())
    mask = atom.document(torch.from_numpy(ids.copy()), tensor)
    return Case(mask, matrix_of(oracle.document, ids, kv_ids), over_positions=True)


def _prefix(length: int) -> Case:
    return Case(atom.prefix(length), matrix_of(oracle.prefix, length))


def _sliding(window: int) -> Case:
    return Case(atom.sliding(window), matrix_of(oracle.sliding, window))


def _chunked(chunk: int) -> Case:
    return Case(atom.chunked(chunk), matrix_of(oracle.chunked, chunk))


def _dilated(dilation: int) -> Case:
    return Case(atom.dilated(dilation), matrix_of(oracle.dilated, dilation))


def _block_causal(chunk: int) -> Case:
    return Case(atom.block_causal(chunk), matrix_of(oracle.block_causal, chunk))


def _window(left: int | None, right: int | None) -> Case:
    return Case(atom.window(left, right), matrix_of(oracle.window, left, right))


def _padding(*lengths: int, queries: bool | list[int] = False) -> Case:
    mask = atom.padding(torch.tensor(lengths), queries=queries)
    return Case(mask, matrix_of(oracle.padding, lengths, queries=queries))


def _dense(array: np.ndarray) -> Case:  # type: ignore[type-arg]
    mask = atom.dense(torch.from_numpy(array.copy()))
    return Case(mask, matrix_of(oracle.dense, array), over_positions=True)


def _neighborhood(*args: Any) -> Case:
    return Case(atom.neighborhood(*args), matrix_of(oracle_grids.neighborhood, *args))


def _sliding_tile(*args: Any) -> Case:
    return Case(atom.sliding_tile(*args), matrix_of(oracle_grids.sliding_tile, *args))


_causal = Case(atom.causal, matrix_of(oracle.causal))
_document_lengths = (9, 0, 14, 22)
_bounds = (0, 7, 7, 30, 41)

CATALOGUE: Final[dict[str, Case]] = {
    "everything": Case(algebra.everything, matrix_of(oracle.everything)),
    "nothing": Case(algebra.nothing, matrix_of(oracle.nothing)),
    "causal": _causal,
    "sliding": _sliding(5),
    "sliding, itself only": _sliding(1),
    "window": _window(6, 2),
    "window, open to the left": _window(None, 3),
    "window, open to the right": _window(4, None),
    "prefix": _prefix(11),
    "prefix of nothing": _prefix(0),
    "prefix per batch": Case(
        atom.prefix(torch.tensor([5, LONGEST])), matrix_of(oracle.prefix, (5, LONGEST))
    ),
    "padding": _padding(17, 0),
    "padding of queries": _padding(17, LONGEST, queries=True),
    "padding of both": _padding(17, LONGEST, queries=[LONGEST, 9]),
    "document": _document(IDS),
    "document in any order": _document(CONTIGUOUS),
    "document that recurs": _document(RECURRING),
    "document per batch": _document(PER_BATCH),
    "document with ids of keys": _document(IDS, OTHER_IDS),
    "document with ids of keys per batch": _document(IDS, PER_BATCH),
    "document per batch with ids of keys": _document(PER_BATCH, OTHER_IDS),
    "document from cu_seqlens": Case(
        atom.document.from_cu_seqlens(torch.tensor(_bounds), total=ENTRIES),
        matrix_of(oracle.document_from_cu_seqlens, _bounds),
        over_positions=True,
    ),
    "document from lengths": Case(
        atom.document.from_lengths(_document_lengths, total=ENTRIES),
        matrix_of(oracle.document_from_lengths, _document_lengths),
        over_positions=True,
    ),
    "chunked": _chunked(6),
    "block causal": _block_causal(6),
    "dilated": _dilated(3),
    "every third key from the next one": Case(
        (index.kv_idx - index.q_idx + 1) % 3 == 0,
        lambda *at: (grid(*at)[1] - grid(*at)[0] + 1) % 3 == 0,
    ),
    "one remainder of four": Case(
        (index.q_idx - index.kv_idx + 1) % 4 == 2,
        lambda *at: (grid(*at)[0] - grid(*at)[1] + 1) % 4 == 2,
    ),
    "dense": _dense(DENSE),
    "dense of keys": _dense(DENSE[:, :, :1]),
    "causal sliding": _causal & _sliding(7),
    "sinks and window": _causal & (_sliding(6) | _prefix(3)),
    "global and window": _sliding(4) | _prefix(2) | _prefix(2).shift(kv=1),
    "prefix LM": _causal | _prefix(9),
    "prefix LM per batch": _causal | _padding(4, 21),
    "causal documents": _causal & _document(IDS),
    "causal sliding documents": _causal & _sliding(6) & _document(IDS),
    "causal documents that recur": _causal & _document(RECURRING),
    "documents or a window": _document(IDS) | _sliding(2),
    "other documents": ~_document(IDS) & _causal,
    "padded causal": _causal & _padding(30, 12, queries=True),
    "chunked causal": _causal & _chunked(8),
    "chunks and a window": _block_causal(5) & _window(12, None),
    "dilated sliding": _sliding(9) & _dilated(2),
    "strided": _causal & (_sliding(4) | _dilated(4)),
    "band ring": _sliding(9) & ~_sliding(4),
    "causal below a dense mask": _causal & _dense(DENSE),
    "decoding step": (_causal & _sliding(12)).shift(q=15),
    "decoding step by a tensor": (_causal & _document(IDS)).shift(q=9, as_tensor=True),
    "decoding step per batch": (_causal & _sliding(8)).shift_each([3, 20]),
    "neighborhood on a line": _neighborhood(38, 7, 3),
    "neighborhood on an image": _neighborhood((5, 8), (3, 4)),
    "neighborhood, dilated and causal": _neighborhood((4, 10), (2, 3), (1, 3), (True, False)),
    "neighborhood on a video": _neighborhood((3, 4, 3), (2, 3, 2), 1, (True, False, False)),
    "causal neighborhood": _causal & _neighborhood((6, 7), 3),
    "neighborhood by tiles": Case(
        atom.tiled_neighborhood((4, 9), (2, 3), (3, 4)),
        matrix_of(oracle_grids.tiled_neighborhood, (4, 9), (2, 3), (3, 4)),
    ),
    "sliding tiles": _sliding_tile((6, 6), (2, 3), (1, 2)),
    "sliding tiles and text": _sliding_tile((4, 4, 2), (2, 2, 1), (1, 2, 2), 6),
    "heads within frames and across them": where(
        Case(index.head % 2 == 0, lambda *at: _of_head(*at) % 2 == 0),
        Case(atom.spatial(7, 1), matrix_of(oracle_grids.spatial, 7, 1)),
        Case(atom.temporal(7, 1), matrix_of(oracle_grids.temporal, 7, 1)),
    ),
    "kinds of keys": Case(
        index.table(torch.from_numpy(KINDS.copy()), "kinds")[index.kv_idx] == 1,
        lambda *at: np.broadcast_to(KINDS[grid(*at)[1]] == 1, (1, 1, *at[:2])),
        over_positions=True,
    ),
    "heads of two kinds": where(
        Case(index.head % 2 == 0, lambda *at: _of_head(*at) % 2 == 0), _sliding(3), _causal
    ),
    "window that grows with the head": Case(
        abs(index.q_idx - index.kv_idx) <= 2 * index.head + 1,
        lambda *at: abs(grid(*at)[0] - grid(*at)[1]) <= 2 * grid(*at)[3] + 1,
    ),
    **TOKENS,
}


def _of_head(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.broadcast_to(np.arange(HEADS).reshape(1, -1, 1, 1), (1, HEADS, q_len, kv_len))
