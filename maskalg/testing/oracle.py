"""Every mask and score term once more, straight from its formula, in plain numpy.

Nothing here shares code with the rest of the package: these functions exist to disagree with it.
They are written to be read against the formulas, not to be fast.

A mask function returns a Boolean array ``[batch, heads, q_len, kv_len]``, True where the key is
kept; batch and heads are 1 where the formula does not depend on them. Entry ``[b, h, i, j]`` is
the mask at the global positions ``q = i + q_shift`` and ``k = j + kv_shift``. Looking up a position
that a given array does not have raises ``IndexError``; negative positions never wrap around.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]
Side = int | None  # one bound of a window

EMPTY, PARTIAL, FULL = 0, 1, 2


def _positions(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> tuple[Ints, Ints]:
    """Global query and key position of every element, each ``[1, 1, q_len, kv_len]``."""
    q = np.zeros((1, 1, q_len, kv_len), np.int64)
    k = np.zeros((1, 1, q_len, kv_len), np.int64)
    for i in range(q_len):
        q[:, :, i, :] = i + q_shift
    for j in range(kv_len):
        k[:, :, :, j] = j + kv_shift
    return q, k


def _at(values: NDArray[np.generic], position: int) -> int:
    """``values[position]``, refusing a position outside ``0 … len(values) − 1``."""
    if not 0 <= position < len(values):
        raise IndexError(f"position {position} is outside an array of length {len(values)}")
    return int(values[position])


# Masks of the positions alone: [1, 1, q_len, kv_len].


def everything(*, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """Keeps all."""
    return np.ones((1, 1, q_len, kv_len), np.bool_)


def nothing(*, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """Keeps none."""
    return np.zeros((1, 1, q_len, kv_len), np.bool_)


def causal(*, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``q ≥ k``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    return q >= k


def sliding(w: int, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``|q − k| < w``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    return abs(q - k) < w


def window(
    left: Side, right: Side, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Bools:
    """``−left ≤ k − q ≤ right``; a side that is None has no bound."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    keep: Bools = np.ones((1, 1, q_len, kv_len), np.bool_)
    if left is not None:
        keep = keep & (k - q >= -left)
    if right is not None:
        keep = keep & (k - q <= right)
    return keep


def chunked(c: int, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``⌊q / c⌋ = ⌊k / c⌋``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    keep: Bools = q // c == k // c
    return keep


def block_causal(c: int, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``⌊q / c⌋ ≥ ⌊k / c⌋``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    keep: Bools = q // c >= k // c
    return keep


def dilated(d: int, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``(q − k) mod d = 0``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    keep: Bools = (q - k) % d == 0
    return keep


# Masks of lengths and document ids: [batch or 1, 1, q_len, kv_len].


def prefix(n: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0) -> Bools:
    """``k < n``, for one number ``n`` or for ``n[b]`` of shape ``[batch]``."""
    _, k = _positions(q_len, kv_len, q_shift, kv_shift)
    return np.concatenate([k < bound for bound in np.atleast_1d(np.asarray(n))])


def padding(
    lengths: ArrayLike,
    *,
    queries: bool | ArrayLike = False,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """``k < lengths[b]`` and, with ``queries``, ``q < lengths[b]``; ``lengths`` is ``[batch]``.

    ``queries`` may be lengths ``[batch]`` of their own: ``q < queries[b]``.
    """
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    given = np.atleast_1d(np.asarray(lengths))
    if queries is False:
        return np.concatenate([k < length for length in given])
    own = given if queries is True else np.atleast_1d(np.asarray(queries))
    return np.concatenate([(k < n) & (q < m) for n, m in zip(given, own, strict=True)])


def document(
    ids: ArrayLike,
    kv_ids: ArrayLike | None = None,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """``ids[b, q] = kv_ids[b, k]``.

    Both are ``[N]`` or ``[batch, N]``, indexed by global position; ``kv_ids`` is ``ids`` when None.
    """
    of_queries = np.atleast_2d(np.asarray(ids))
    of_keys = of_queries if kv_ids is None else np.atleast_2d(np.asarray(kv_ids))
    (batch,) = np.broadcast_shapes(of_queries.shape[:1], of_keys.shape[:1])
    keep = np.zeros((batch, 1, q_len, kv_len), np.bool_)
    for b in range(batch):
        q_row = of_queries[b if len(of_queries) > 1 else 0]
        k_row = of_keys[b if len(of_keys) > 1 else 0]
        key_ids = [_at(k_row, j + kv_shift) for j in range(kv_len)]
        for i in range(q_len):
            query_id = _at(q_row, i + q_shift)
            for j in range(kv_len):
                keep[b, 0, i, j] = query_id == key_ids[j]
    return keep


def document_from_cu_seqlens(
    cu: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Bools:
    """Both positions in one ``cu[d] ≤ x < cu[d + 1]``; ``cu`` is ``[documents + 1]``, ascending.

    Positions outside all documents, those past ``cu[−1]`` among them, keep nothing.
    """
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    bounds = np.asarray(cu)
    keep = np.zeros((1, 1, q_len, kv_len), np.bool_)
    for d in range(len(bounds) - 1):
        start, end = bounds[d], bounds[d + 1]
        keep = keep | ((start <= q) & (q < end) & (start <= k) & (k < end))
    return keep


def document_from_lengths(
    lengths: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Bools:
    """Documents of these ``lengths``, ``[documents]``, one after another from position 0."""
    owner = [d for d, length in enumerate(np.asarray(lengths)) for _ in range(int(length))]
    keep = np.zeros((1, 1, q_len, kv_len), np.bool_)
    for i in range(q_len):
        for j in range(kv_len):
            q, k = i + q_shift, j + kv_shift
            inside = 0 <= q < len(owner) and 0 <= k < len(owner)
            keep[0, 0, i, j] = inside and owner[q] == owner[k]
    return keep


def dense(
    array: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Bools:
    """``array[b, h, q, k]``; missing leading axes are added, an axis of size 1 is broadcast."""
    given = np.asarray(array).astype(np.bool_)
    given = given.reshape((1,) * (4 - given.ndim) + given.shape)
    batch, heads, rows, cols = given.shape
    keep = np.zeros((batch, heads, q_len, kv_len), np.bool_)
    for i in range(q_len):
        q = 0 if rows == 1 else i + q_shift
        for j in range(kv_len):
            k = 0 if cols == 1 else j + kv_shift
            if not (0 <= q < rows and 0 <= k < cols):
                raise IndexError(f"({q}, {k}) is outside an array of {rows} × {cols}")
            keep[:, :, i, j] = given[:, :, q, k]
    return keep


# Score terms: additive biases are [1, heads, q_len, kv_len], to be added to the scaled score.


def alibi(
    slopes: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Floats:
    """``slopes[h] · (k − q)``; ``slopes`` is ``[heads]``."""
    q, k = _positions(q_len, kv_len, q_shift, kv_shift)
    m = np.asarray(slopes, np.float64)
    return m[None, :, None, None] * (k - q)


def relative(
    table: ArrayLike, *, q_len: int, kv_len: int, q_shift: int = 0, kv_shift: int = 0
) -> Floats:
    """``table[h, clip(k − q, −D, D) + D]``; ``table`` is ``[heads, 2 D + 1]``."""
    values = np.asarray(table, np.float64)
    reach = (values.shape[1] - 1) // 2
    bias = np.zeros((1, values.shape[0], q_len, kv_len))
    for i in range(q_len):
        for j in range(kv_len):
            distance = (j + kv_shift) - (i + q_shift)
            bias[0, :, i, j] = values[:, min(max(distance, -reach), reach) + reach]
    return bias


def softcap(s: ArrayLike, c: float) -> Floats:
    """``c · tanh(s / c)``, a score of any shape."""
    return np.asarray(c * np.tanh(np.asarray(s, np.float64) / c), np.float64)


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
