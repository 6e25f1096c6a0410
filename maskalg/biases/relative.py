"""Learned biases on the clipped distance between query and key."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Bias
from ..nodes import HEAD, SCORE, TRUE, K, Q
from ..parameters import Table
from ..printing import called


def relative(table: torch.Tensor) -> Bias:
    """s + table[head, clip(k - q, -d, d) + d] for a table of 2 d + 1 distances.

    Args:
        table: floating `[heads, 2 * d + 1]`, or `[2 * d + 1]` for all heads; entry `d` is the
            query's own key. Receives a gradient when it requires one.

    Source: clipped relative positions of Shaw et al. (2018), as an additive bias.
    """
    if not isinstance(table, torch.Tensor) or not table.dtype.is_floating_point:
        found = table.dtype if isinstance(table, torch.Tensor) else type(table).__name__
        raise errors.tensor_dtype("relative", "table", found, "a floating-point tensor")
    if table.ndim not in (1, 2) or table.shape[-1] % 2 == 0:
        raise errors.tensor_shape(
            "relative", "table", list(table.shape), "[heads, 2 * d + 1] or [2 * d + 1]"
        )
    entries = Table("table", table)
    farthest = nodes.floordiv(nodes.extent(entries, table.ndim - 1), nodes.const(2))
    clipped = nodes.maximum(nodes.minimum(nodes.subtract(K, Q), farthest), nodes.negate(farthest))
    heads = [HEAD] if table.ndim == 2 else []
    added = nodes.read(entries, *heads, nodes.add(clipped, farthest))
    return Bias(TRUE, nodes.add(SCORE, added), called("relative", entries))
