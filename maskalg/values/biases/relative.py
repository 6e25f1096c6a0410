"""Learned biases on the clipped distance between query and key."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Node, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import HEADS, BiasRows, Floats, numbers

__all__ = ["relative"]


def relative(table: Entries) -> Bias:
    """s + table[head, clip(k - q, -d, d) + d] for a table of 2 d + 1 distances.

    Args:
        table: floating `[heads, 2 * d + 1]`, or `[2 * d + 1]` for all heads; entry `d` is the
            query's own key. Receives a gradient when it requires one.

    Source: clipped relative positions of Shaw et al. (2018), as an additive bias.
    """
    shapes = "[heads, 2 * d + 1] or [2 * d + 1]"
    entries = real_table("relative", "table", table, (1, 2), shapes)
    heads = [HEAD] if entries.tensor.ndim == 2 else []
    added = nodes.read(entries, *heads, clipped("relative", entries, shapes))
    return Bias(TRUE, nodes.add(SCORE, added), called("relative", entries))


def clipped(call: str, table: Table, wanted: str) -> Node:
    """clip(k - q, -d, d) + d, a place along the last axis of a table of 2 d + 1 distances."""
    shape = list(table.tensor.shape)
    if shape[-1] % 2 == 0:
        raise errors.tensor_shape(call, table.name, shape, wanted)
    farthest = nodes.floordiv(nodes.extent(table, len(shape) - 1), nodes.const(2))
    near = nodes.maximum(nodes.minimum(nodes.subtract(K, Q), farthest), nodes.negate(farthest))
    return nodes.add(near, farthest)


# The second definition, and the rows of the catalogue.


def relative_by_hand(table: ArrayLike, **at: int) -> Floats:
    """`table[h, clip(k − q, −D, D) + D]`; `table` is `[heads, 2 D + 1]`."""
    values = np.asarray(table, np.float64)
    reach = values.shape[1] // 2
    return numbers(
        lambda _, h, q, k: values[h, min(max(k - q, -reach), reach) + reach], 1, len(values), **at
    )


def rows() -> BiasRows:
    table = np.random.default_rng(2).normal(size=(HEADS, 9))
    return {"relative": (relative, relative_by_hand, (table,))}
