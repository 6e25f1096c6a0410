"""Learned biases on distances in a graph."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries, integers, of_rank
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import entries_within, real_table
from ..by_hand import BATCH_SIZE, HEADS, WINDOWED, BiasRows, Floats, entry, numbers, padded

__all__ = ["graphormer"]


def graphormer(table: Entries, distances: Entries) -> Bias:
    """s + table[distances[batch, q, k], head]: a number for each distance of two nodes.

    The bias of edges on the way from one node to the other is `dense_bias(edges)`.

    Args:
        table: floating `[distances, heads]`, as Graphormer's `spatial_pos_encoder.weight`. Receives
            a gradient when it requires one.
        distances: int32 or int64 `[nodes, nodes]` or `[batch, nodes, nodes]`: indices into `table`,
            unreachable nodes included.

    Raises:
        ValueError: on the CPU, a distance that `table` has no entry for. On a GPU and in compiled
            functions distances are not checked, and such a distance counts as the nearest.

    Source: Graphormer (Ying et al., 2021).
    """
    entries = real_table("graphormer", "table", table, (2,), "[distances, heads]")
    distances = integers("graphormer", "distances", distances)
    wanted = "[nodes, nodes] or [batch, nodes, nodes]"
    of_rank("graphormer", "distances", distances, (2, 3), wanted)
    entries_within("graphormer", "distances", distances, 0, len(entries.tensor))
    between = nodes.read(Table("distances", distances), *[BATCH, Q, K][-distances.ndim :])
    added = nodes.read(entries, between, HEAD)
    return Bias(TRUE, nodes.add(SCORE, added), called("graphormer", entries))


# The second definition, and the rows of the catalogue.


def graphormer_by_hand(table: ArrayLike, distances: ArrayLike, **at: int) -> Floats:
    """`table[distances[b, q, k], h]`."""
    values, between = np.asarray(table, np.float64), padded(distances, 3)
    return numbers(
        lambda b, h, q, k: values[int(entry(between, b, q, k)), h],
        len(between),
        values.shape[1],
        **at,
    )


def rows() -> BiasRows:
    random = np.random.default_rng(10)
    distances = random.integers(0, 7, (BATCH_SIZE, WINDOWED, WINDOWED))
    return {
        "Graphormer": (
            partial(graphormer, distances=distances),
            partial(graphormer_by_hand, distances=distances),
            (random.normal(size=(7, HEADS)),),
        )
    }
