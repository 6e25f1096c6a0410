"""The oracle of score terms that add a number to the scaled score.

Written from the formulas alone, as the rest of the oracle is. Every function returns what is added,
float64 ``[batch, heads, q_len, kv_len]`` with batch and heads of size 1 where they do not matter.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .oracle_loops import Floats, entry, numbers, padded


def relative_2d(table: ArrayLike, window: tuple[int, int], **at: int) -> Floats:
    """``table[(Δy + H − 1)(2W − 1) + Δx + W − 1, h]`` with Δ from key to query."""
    values, (height, width) = np.asarray(table, np.float64), window

    def value(b: int, h: int, q: int, k: int) -> float:
        (y_q, x_q), (y_k, x_k) = divmod(q, width), divmod(k, width)
        place = (y_q - y_k + height - 1) * (2 * width - 1) + x_q - x_k + width - 1
        return float(values[place, h])

    return numbers(value, 1, values.shape[1], **at)


def decomposed(rel_h: ArrayLike, rel_w: ArrayLike, **at: int) -> Floats:
    """``rel_h[b, h, q, k // W] + rel_w[b, h, q, k mod W]``."""
    rows, columns = np.asarray(rel_h, np.float64), np.asarray(rel_w, np.float64)
    width = columns.shape[3]
    return numbers(
        lambda b, h, q, k: entry(rows, b, h, q, k // width) + entry(columns, b, h, q, k % width),
        *rows.shape[:2],
        **at,
    )


def t5_bucket(distance: int, buckets: int, bidirectional: bool, max_distance: int) -> int:
    """The bucket of a key ``distance`` after the query."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(-distance, 0)
    exact = buckets // 2
    if away < exact:
        return first + away
    growth = math.log(away / exact) / math.log(max_distance / exact)
    return first + min(exact + int(growth * (buckets - exact)), buckets - 1)


def t5(table: ArrayLike, bidirectional: bool, max_distance: int, **at: int) -> Floats:
    """``table[bucket(k − q), h]``."""
    values = np.asarray(table, np.float64)
    return numbers(
        lambda b, h, q, k: values[t5_bucket(k - q, len(values), bidirectional, max_distance), h],
        1,
        values.shape[1],
        **at,
    )


def shaw(rows: ArrayLike, **at: int) -> Floats:
    """``rows[b, h, q, clip(k − q, −D, D) + D]``."""
    values = np.asarray(rows, np.float64)
    reach = values.shape[3] // 2
    return numbers(
        lambda b, h, q, k: entry(values, b, h, q, min(max(k - q, -reach), reach) + reach),
        *values.shape[:2],
        **at,
    )


def key_bias(tensor: ArrayLike, **at: int) -> Floats:
    """``tensor[b, h, k]``."""
    values = padded(tensor, 3)
    return numbers(lambda b, h, q, k: entry(values, b, h, k), *values.shape[:2], **at)


def dense_bias(tensor: ArrayLike, **at: int) -> Floats:
    """``tensor[b, h, q, k]``."""
    values = padded(tensor, 4)
    return numbers(lambda b, h, q, k: entry(values, b, h, q, k), *values.shape[:2], **at)


def sandwich(factors: ArrayLike, dim: int, **at: int) -> Floats:
    """``factors[h] Σ cos((q − k) / 10000^(2i/dim))`` over i = 1 … dim/2."""
    values = np.asarray(factors, np.float64)

    def value(b: int, h: int, q: int, k: int) -> float:
        waves = [math.cos((q - k) / 10000 ** (2 * i / dim)) for i in range(1, dim // 2 + 1)]
        return float(values[h] * sum(waves))

    return numbers(value, 1, len(values), **at)


def kerple_log(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """``−r1[h] log(1 + r2[h] |q − k|)``."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * math.log(1 + b[h] * abs(q - k)), 1, len(a), **at)


def kerple_power(r1: ArrayLike, r2: ArrayLike, **at: int) -> Floats:
    """``−r1[h] |q − k|^r2[h]``."""
    a, b = np.asarray(r1, np.float64), np.asarray(r2, np.float64)
    return numbers(lambda _, h, q, k: -a[h] * abs(q - k) ** b[h], 1, len(a), **at)


def fire(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    c: float,
    threshold: float,
    **at: int,
) -> Floats:
    """A network of one hidden layer on ``ψ(q − k) / ψ(max(threshold, q))``, ψ(x) = log(cx + 1).

    ``first`` and ``second`` are weight and offset of the layers; keys after the query count as 0.
    """
    w1, b1, w2, b2 = (np.asarray(t, np.float64) for t in (*first, *second))

    def value(b: int, h: int, q: int, k: int) -> float:
        x = math.log(c * max(q - k, 0) + 1) / math.log(c * max(threshold, q) + 1)
        return float(w2[h] @ np.maximum(w1 * x + b1, 0) + b2[h])

    return numbers(value, 1, len(b2), **at)


def graphormer(table: ArrayLike, distances: ArrayLike, **at: int) -> Floats:
    """``table[distances[b, q, k], h]``."""
    values, between = np.asarray(table, np.float64), padded(distances, 3)
    return numbers(
        lambda b, h, q, k: values[int(entry(between, b, q, k)), h],
        len(between),
        values.shape[1],
        **at,
    )
