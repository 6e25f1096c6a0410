"""Learned biases on distances in a graph."""

from __future__ import annotations

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries, integers
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Bias
from ..masks.arguments import entries_within
from .arguments import real_table


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
            functions, where nothing waits for entries, it is taken for the nearest.

    Source: Graphormer (Ying et al., 2021).
    """
    entries = real_table("graphormer", "table", table, (2,), "[distances, heads]")
    distances = integers("graphormer", "distances", distances)
    if distances.ndim not in (2, 3):
        wanted = "[nodes, nodes] or [batch, nodes, nodes]"
        raise errors.tensor_shape("graphormer", "distances", list(distances.shape), wanted)
    entries_within("graphormer", "distances", distances, 0, len(entries.tensor))
    between = nodes.read(Table("distances", distances), *[BATCH, Q, K][-distances.ndim :])
    added = nodes.read(entries, between, HEAD)
    return Bias(TRUE, nodes.add(SCORE, added), called("graphormer", entries))
