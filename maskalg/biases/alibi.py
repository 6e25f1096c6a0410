"""Attention with linear biases."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Bias
from ..nodes import HEAD, SCORE, TRUE, K, Q
from ..parameters import Table
from ..printing import called


def alibi(slopes: torch.Tensor) -> Bias:
    """s + slopes[head] * (k - q): distant keys before the query count less.

    Args:
        slopes: floating `[heads]`; receives a gradient when it requires one.

    Raises:
        TypeError: slopes that are no floating-point tensor.
        ValueError: slopes of another rank; at the call, of another number of heads.

    Source: Press, Smith, Lewis, "Train Short, Test Long" (2021).

    Examples:
        >>> causal & sliding(64) + alibi(torch.tensor([0.5, 0.25]))
        causal & sliding(64) + alibi(slopes[2])
    """
    if not isinstance(slopes, torch.Tensor) or not slopes.dtype.is_floating_point:
        found = slopes.dtype if isinstance(slopes, torch.Tensor) else type(slopes).__name__
        raise errors.tensor_dtype("alibi", "slopes", found, "a floating-point tensor")
    if slopes.ndim != 1:
        raise errors.tensor_shape("alibi", "slopes", list(slopes.shape), "[heads]")
    table = Table("slopes", slopes)
    added = nodes.mul(nodes.read(table, HEAD), nodes.subtract(K, Q))
    return Bias(TRUE, nodes.add(SCORE, added), called("alibi", table))
