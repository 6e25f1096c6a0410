"""Learned biases on the clipped distance between query and key."""

from __future__ import annotations

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Q
from ...formula.printing import called
from ..algebra import Bias
from .arguments import real_table


def relative(table: Entries) -> Bias:
    """s + table[head, clip(k - q, -d, d) + d] for a table of 2 d + 1 distances.

    Args:
        table: floating `[heads, 2 * d + 1]`, or `[2 * d + 1]` for all heads; entry `d` is the
            query's own key. Receives a gradient when it requires one.

    Source: clipped relative positions of Shaw et al. (2018), as an additive bias.
    """
    shapes = "[heads, 2 * d + 1] or [2 * d + 1]"
    entries = real_table("relative", "table", table, (1, 2), shapes)
    shape = entries.tensor.shape
    if shape[-1] % 2 == 0:
        raise errors.tensor_shape("relative", "table", list(shape), shapes)
    farthest = nodes.floordiv(nodes.extent(entries, len(shape) - 1), nodes.const(2))
    clipped = nodes.maximum(nodes.minimum(nodes.subtract(K, Q), farthest), nodes.negate(farthest))
    heads = [HEAD] if len(shape) == 2 else []
    added = nodes.read(entries, *heads, nodes.add(clipped, farthest))
    return Bias(TRUE, nodes.add(SCORE, added), called("relative", entries))
