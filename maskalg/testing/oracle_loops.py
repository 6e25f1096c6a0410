"""What the oracles of single families share: a loop over every pair of positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def pairs(
    keep: Callable[[int, int, int, int], object],
    batch: int = 1,
    heads: int = 1,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Bools:
    """``keep(b, h, q, k)`` at every element, Boolean ``[batch, heads, q_len, kv_len]``."""
    result = np.zeros((batch, heads, q_len, kv_len), np.bool_)
    for b, h, i, j in np.ndindex(*result.shape):
        result[b, h, i, j] = bool(keep(b, h, i + q_shift, j + kv_shift))
    return result


def numbers(
    value: Callable[[int, int, int, int], float],
    batch: int = 1,
    heads: int = 1,
    *,
    q_len: int,
    kv_len: int,
    q_shift: int = 0,
    kv_shift: int = 0,
) -> Floats:
    """``value(b, h, q, k)`` at every element, float64 ``[batch, heads, q_len, kv_len]``."""
    result = np.zeros((batch, heads, q_len, kv_len))
    for b, h, i, j in np.ndindex(*result.shape):
        result[b, h, i, j] = value(b, h, i + q_shift, j + kv_shift)
    return result


def entry(values: ArrayLike, *places: int) -> float:
    """``values[places]``; axes of size 1 are broadcast, other places outside are an error."""
    array = np.asarray(values)
    inside = []
    for place, size in zip(places, array.shape, strict=True):
        if size != 1 and not 0 <= place < size:
            raise IndexError(f"{places} is outside an array of shape {array.shape}")
        inside.append(0 if size == 1 else place)
    return array[tuple(inside)].item()  # type: ignore[no-any-return]


def padded(values: ArrayLike, axes: int) -> NDArray[np.generic]:
    """The array with axes of size 1 added in front, up to ``axes`` of them in all."""
    array = np.asarray(values)
    return array.reshape((1,) * (axes - array.ndim) + array.shape)
