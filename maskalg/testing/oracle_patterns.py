"""The oracle of sparse patterns and of other libraries' formats.

Written from the formulas alone, as the rest of the oracle is; see `maskalg.testing.oracle`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .oracle_loops import Bools, entry, padded, pairs


def sliding_per_head(w: ArrayLike, **at: int) -> Bools:
    """``|q − k| < w[h]`` or ``w[b, h]``; an entry below 1 counts as 1."""
    rows = padded(w, 2)
    return pairs(lambda b, h, q, k: abs(q - k) < max(entry(rows, b, h), 1), *rows.shape, **at)


def strided(d: int, **at: int) -> Bools:
    """Causal, and near (fewer than ``d`` back) or a multiple of ``d`` back."""
    return pairs(lambda b, h, q, k: k <= q and (q - k < d or (q - k) % d == 0), **at)


def block_table(table: ArrayLike, block: tuple[int, int], **at: int) -> Bools:
    """``table[b, h, q // block_q, k // block_kv] ≠ 0``."""
    given = padded(table, 4)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        row, column = q // block[0], k // block[1]
        if not (0 <= row < given.shape[2] and 0 <= column < given.shape[3]):
            raise IndexError(f"block ({row}, {column}) is outside of {given.shape[2:]}")
        kept = given[b if len(given) > 1 else 0, h if given.shape[1] > 1 else 0, row, column]
        return bool(kept != 0)

    return pairs(keep, given.shape[0], given.shape[1], **at)


def block_diffusion(n: int, c: int, **at: int) -> Bools:
    """A half of noisy tokens beside a half of clean ones, in blocks of ``c``."""

    def keep(b: int, h: int, q: int, k: int) -> bool:
        q_block, k_block = (q if q < n else q - n) // c, (k if k < n else k - n) // c
        if q < n:
            return q_block == k_block if k < n else k_block < q_block
        return False if k < n else k_block <= q_block

    return pairs(keep, **at)


def vertical_slash(vertical: ArrayLike, slash: ArrayLike, **at: int) -> Bools:
    """Causal, and a chosen key ``vertical[k]`` or a chosen distance ``slash[q − k]``."""
    columns, diagonals = padded(vertical, 3), padded(slash, 3)
    return pairs(
        lambda b, h, q, k: k <= q and (entry(columns, b, h, k) or entry(diagonals, b, h, q - k)),
        max(len(columns), len(diagonals)),
        max(columns.shape[1], diagonals.shape[1]),
        **at,
    )


def flashmask(indices: ArrayLike, causal: bool, **at: int) -> Bools:
    """Keys hidden from ranges of queries; ``indices`` is ``[batch, heads, keys, 1, 2 or 4]``."""
    given = np.asarray(indices)
    forms = {
        (True, 1): lambda c, end: [(c[0], end)],
        (True, 2): lambda c, end: [(c[0], c[1])],
        (False, 2): lambda c, end: [(c[0], end), (0, c[1])],
        (False, 4): lambda c, end: [(c[0], c[1]), (c[2], c[3])],
    }

    def keep(b: int, h: int, q: int, k: int) -> bool:
        columns = given[b if len(given) > 1 else 0, h if given.shape[1] > 1 else 0, k]
        hidden = list(forms[causal, len(columns)](columns, q + 1))
        return not any(low <= q < high for low, high in hidden) and not (causal and k > q)

    return pairs(keep, given.shape[0], given.shape[1], **at)


def attention_slices(
    q_ranges: Sequence[tuple[int, int]],
    k_ranges: Sequence[tuple[int, int]],
    kinds: Sequence[int],
    **at: int,
) -> Bools:
    """Rectangles, whole (0) or cut: the last query sees the last key (1), the first the first (2).

    Kind 3 is cut both ways.
    """

    def keep(b: int, h: int, q: int, k: int) -> bool:
        for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, kinds, strict=True):
            if not (q0 <= q < q1 and k0 <= k < k1):
                continue
            from_end, from_start = (k1 - 1 - k) >= (q1 - 1 - q), (k - k0) >= (q - q0)
            if {0: True, 1: from_end, 2: from_start, 3: from_end and from_start}[kind]:
                return True
        return False

    return pairs(keep, **at)
