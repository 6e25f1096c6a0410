"""Scores that fade with distance, for linear weights."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Bias
from ..nodes import HEAD, SCORE, TRUE, K, Q
from ..parameters import Table
from ..printing import called


def decay(log_rates: torch.Tensor) -> Bias:
    """s * exp(log_rates[head] * |q - k|): the retention's decay, for `weight=ma.linear`.

    Args:
        log_rates: floating `[heads]`, the natural log of each head's rate, below 0 for decay;
            receives a gradient when it requires one.

    Source: Sun et al., "Retentive Network" (2023).
    """
    if not isinstance(log_rates, torch.Tensor) or not log_rates.dtype.is_floating_point:
        found = log_rates.dtype if isinstance(log_rates, torch.Tensor) else type(log_rates).__name__
        raise errors.tensor_dtype("decay", "log_rates", found, "a floating-point tensor")
    if log_rates.ndim != 1:
        raise errors.tensor_shape("decay", "log_rates", list(log_rates.shape), "[heads]")
    table = Table("log_rates", log_rates)
    distance = nodes.maximum(nodes.subtract(Q, K), nodes.subtract(K, Q))
    exponent = nodes.mul(nodes.read(table, HEAD), distance)
    faded = nodes.mul(SCORE, nodes.call("exp", exponent))
    return Bias(TRUE, faded, called("decay", table))
