"""Relative positions whose bias depends on the content of the query."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, Q
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import BATCH_SIZE, HEADS, WINDOWED, BiasRows, Floats, entry, numbers
from .relative import clipped

__all__ = ["shaw"]


def shaw(rows: Entries) -> Bias:
    """s + rows[batch, head, q, clip(k - q, -d, d) + d]: each query's own score for a distance.

    With embeddings `[2 * d + 1, head_dim]` of the clipped distances,
    `rows = scale * query @ embeddings.T`; queries and embeddings get their gradients through it.
    With M keys before the first query, `causal.shift(q=M) + shaw(rows).at(kv=kv_idx - M)`.

    Args:
        rows: floating `[batch, heads, queries, 2 * d + 1]`; batch and heads of size 1 are
            broadcast. Receives a gradient when it requires one.

    Source: relative position representations for keys, Shaw, Uszkoreit, Vaswani (2018).
    """
    shapes = "[batch, heads, queries, 2 * d + 1]"
    table = real_table("shaw", "rows", rows, (4,), shapes)
    added = nodes.read(table, BATCH, HEAD, Q, clipped("shaw", table, shapes))
    return Bias(TRUE, nodes.add(SCORE, added), called("shaw", table))


# The second definition, and the rows of the catalogue.


def shaw_by_hand(rows: ArrayLike, **at: int) -> Floats:
    """`rows[b, h, q, clip(k − q, −D, D) + D]`."""
    values = np.asarray(rows, np.float64)
    reach = values.shape[3] // 2
    return numbers(
        lambda b, h, q, k: entry(values, b, h, q, min(max(k - q, -reach), reach) + reach),
        *values.shape[:2],
        **at,
    )


def rows() -> BiasRows:
    table = np.random.default_rng(5).normal(size=(BATCH_SIZE, HEADS, WINDOWED, 7))
    return {"Shaw": (shaw, shaw_by_hand, (table,))}
