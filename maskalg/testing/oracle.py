"""A second definition of every mask, score term and weight, in plain numpy.

`oracle.sliding(5, q_len=8, kv_len=8)` is what `sliding(5)` must keep: the function
`sliding_by_hand` of the file of `sliding`, and so on for each entry of the catalogue.
`maskalg.values.by_hand` says what they take and return. None shares code with the rest of the
package: they exist to disagree with it.

Kernels are compared with `attention`, schedules with `labels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..values import biases, masks, weights
from ..values.by_hand import Floats
from ..values.discovery import entries

Labels = NDArray[np.uint8]

EMPTY, PARTIAL, FULL = 0, 1, 2

globals().update(
    {
        name.removesuffix("_by_hand"): function
        for room in (masks, biases, weights)
        for entry in entries(room.__name__)
        for name, function in vars(entry).items()
        if name.endswith("_by_hand")
    }
)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., NDArray[Any]]: ...


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    keep: ArrayLike,
    score: Callable[[Floats], Floats] | None = None,
    scale: float | None = None,
) -> tuple[Floats, Floats]:
    """Softmax attention over the kept keys, in float64.

    ``q`` is ``[batch, heads, q_len, D]``, ``k`` is ``[batch, kv_heads, kv_len, D]`` and ``v`` is
    ``[batch, kv_heads, kv_len, Dv]``; query head ``h`` reads head ``h // (heads // kv_heads)`` of
    ``k`` and ``v``. ``keep`` broadcasts to ``[batch, heads, q_len, kv_len]``. ``score`` turns the
    scaled scores of that shape into the scores that are exponentiated; ``scale`` is ``1/√D`` when
    None. Returns the output ``[batch, heads, q_len, Dv]`` and the natural logarithm of the sum of
    exponentials ``[batch, heads, q_len]``: 0 and −∞ where nothing is kept (or all scores are −∞).
    """
    queries, keys, values = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads, q_len, dim = queries.shape
    kv_len, group = keys.shape[2], heads // keys.shape[1]
    factor = 1 / math.sqrt(dim) if scale is None else scale
    s: Floats = np.zeros((batch, heads, q_len, kv_len))
    for h in range(heads):
        s[:, h] = factor * (queries[:, h] @ keys[:, h // group].swapaxes(-1, -2))
    if score is not None:
        s = score(s)
    kept = np.broadcast_to(np.asarray(keep, np.bool_), (batch, heads, q_len, kv_len))
    out = np.zeros((batch, heads, q_len, values.shape[3]))
    lse = np.full((batch, heads, q_len), -np.inf)
    for b, h, i in np.ndindex(batch, heads, q_len):
        seen = kept[b, h, i]
        row = s[b, h, i, seen]
        top = row.max(initial=-np.inf)
        if top == -np.inf:
            continue
        weights = np.exp(row - top)
        out[b, h, i] = weights @ values[b, h // group, seen] / weights.sum()
        lse[b, h, i] = top + np.log(weights.sum())
    return out, lse


def labels(keep: ArrayLike, block_q: int, block_kv: int) -> Labels:
    """EMPTY, PARTIAL or FULL for every tile of ``keep`` ``[batch, heads, q_len, kv_len]``.

    Returns ``[batch, heads, ⌈q_len / block_q⌉, ⌈kv_len / block_kv⌉]``. The last tiles are cut by
    the lengths: FULL means that every element in range is kept, EMPTY that none is.
    """
    kept = np.asarray(keep, np.bool_)
    batch, heads, q_len, kv_len = kept.shape
    rows, cols = -(-q_len // block_q), -(-kv_len // block_kv)
    result = np.zeros((batch, heads, rows, cols), np.uint8)
    for b, h, r, c in np.ndindex(batch, heads, rows, cols):
        tile = kept[b, h, r * block_q : (r + 1) * block_q, c * block_kv : (c + 1) * block_kv]
        result[b, h, r, c] = FULL if tile.all() else PARTIAL if tile.any() else EMPTY
    return result
