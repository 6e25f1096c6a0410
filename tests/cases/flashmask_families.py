"""The twelve families of masks of FlashMask's benchmarks: what they keep, their columns, counts.

Sizes are those of its generators at 8192 positions, scaled to other lengths; padding belongs to the
last document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import maskalg as ma
from maskalg import causal, document, everything, kv_idx, prefix, q_idx, sliding, table

LENGTH = 8192


@dataclass(frozen=True)
class Family:
    """A mask at a length, its columns, whether they are causal.

    `counts` are its empty, full and partial tiles of 128 x 128 at 8192 positions, found by looking
    at every element.
    """

    mask: Callable[[int], ma.Mask]
    columns: Callable[[int], list[Any]]
    causal: bool
    counts: tuple[int, int, int]


def scaled(size: int, length: int) -> int:
    return size * length // LENGTH


def layout(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The document, its start and its end, of each position."""
    cuts = [0, scaled(2538, length), scaled(2538 + 1742, length), length]
    ids = np.repeat(np.arange(3), np.diff(cuts))
    return ids, np.array(cuts)[ids], np.array(cuts)[ids + 1]


def documents(length: int) -> ma.Mask:
    return document(torch.from_numpy(layout(length)[0]))


def of_document(length: int, number: int) -> torch.Tensor:
    return torch.from_numpy(layout(length)[0] == number)


def window(length: int) -> ma.Mask:
    reach = scaled(512, length)
    first = scaled(128, length) // 8
    return (q_idx < first) | (kv_idx < first) | sliding(reach + 1)


def window_columns(length: int) -> list[Any]:
    at, reach, first = np.arange(length), scaled(512, length), scaled(128, length) // 8
    inner = at < first + reach + 1
    return [
        np.where(at < first, length, at + reach + 1),
        length,
        np.where(inner, 0, first),
        np.where(inner, 0, at - reach),
    ]


def prefixes(length: int) -> np.ndarray:
    return np.array([scaled(size, length) for size in (1024, 1742, 512)])[layout(length)[0]]


def prefix_documents(length: int) -> ma.Mask:
    _, start, _ = layout(length)
    inside = torch.from_numpy(np.arange(length) - start < prefixes(length))
    return documents(length) & (causal | table(inside, "inside")[kv_idx])


def spans(length: int) -> np.ndarray:
    """The end of the span of each position, or -1 outside of spans."""
    at, found = np.arange(length), np.full(length, -1)
    for start, size in ((1024, 538), (2358, 1700)):
        first, end = scaled(start, length), scaled(start + size, length)
        found[(at >= first) & (at < end)] = end
    return found


def qk_sparse(length: int) -> ma.Mask:
    ends = torch.from_numpy(spans(length))
    return causal & ~(document(ends) & (table(ends, "ends")[kv_idx] >= 0))


def evicted(length: int) -> np.ndarray:
    """When each key is dropped: a random time after its own position."""
    return np.random.default_rng(0).integers(np.arange(length) + 1, length + 1)


def _end(length: int) -> np.ndarray:
    return layout(length)[2]


def _last(length: int) -> Any:
    return layout(length)[1][-1]


FAMILIES: dict[str, Family] = {
    "full": Family(lambda n: everything, lambda n: [n, 0], False, (0, 4096, 0)),
    "causal": Family(lambda n: causal, lambda n: [n], True, (2016, 2016, 64)),
    "sliding": Family(
        lambda n: causal & sliding(scaled(1024, n)),
        lambda n: [np.minimum(np.arange(n) + scaled(1024, n), n)],
        True,
        (3556, 420, 120),
    ),
    "causal document": Family(
        lambda n: causal & documents(n), lambda n: [_end(n)], True, (3272, 684, 140)
    ),
    "document": Family(documents, lambda n: [_end(n), layout(n)[1]], False, (2512, 1430, 154)),
    "shared question": Family(
        lambda n: causal & (documents(n) | table(of_document(n, 0), "question")[kv_idx]),
        lambda n: [np.where(layout(n)[0] == 0, n, _end(n))],
        True,
        (2406, 1552, 138),
    ),
    "global and sliding": Family(window, window_columns, False, (3422, 436, 238)),
    "causal blockwise": Family(
        lambda n: causal & (documents(n) | table(of_document(n, 2), "last")[q_idx]),
        lambda n: [_end(n), np.where(layout(n)[0] == 2, n, _last(n))],
        True,
        (2263, 1717, 116),
    ),
    "prefix LM document": Family(
        prefix_documents,
        lambda n: [
            _end(n),
            np.where(np.arange(n) - layout(n)[1] < prefixes(n), layout(n)[1], np.arange(n)),
        ],
        False,
        (3129, 817, 150),
    ),
    "prefix LM causal": Family(
        lambda n: causal | prefix(scaled(1024, n)),
        lambda n: [n, np.where(np.arange(n) < scaled(1024, n), 0, np.arange(n))],
        False,
        (1988, 2052, 56),
    ),
    "QK-sparse": Family(
        qk_sparse,
        lambda n: [np.where(spans(n) < 0, n, np.arange(n)), np.where(spans(n) < 0, n, spans(n))],
        True,
        (2104, 1915, 77),
    ),
    "random eviction": Family(
        lambda n: causal & (q_idx < table(torch.from_numpy(evicted(n)), "evicted")[kv_idx]),
        lambda n: [evicted(n)],
        True,
        (2018, 1, 2077),
    ),
}
