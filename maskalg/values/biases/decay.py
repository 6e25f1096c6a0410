"""Scores that fade with distance, for linear weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Q
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import Floats, places

__all__ = ["decay"]


def decay(log_rates: Entries) -> Bias:
    """s * exp(log_rates[head] * |q - k|): the retention's decay, for `weight=ma.linear`.

    Args:
        log_rates: floating `[heads]`, the natural log of each head's rate, below 0 for decay;
            receives a gradient when it requires one.

    Source: Sun et al., "Retentive Network" (2023).
    """
    table = real_table("decay", "log_rates", log_rates, (1,), "[heads]")
    distance = nodes.maximum(nodes.subtract(Q, K), nodes.subtract(K, Q))
    exponent = nodes.mul(nodes.read(table, HEAD), distance)
    faded = nodes.mul(SCORE, nodes.call("exp", exponent))
    return Bias(TRUE, faded, called("decay", table))


# The second definition; it takes the scores, for it multiplies them.


def decay_by_hand(s: ArrayLike, log_rates: ArrayLike) -> Floats:
    """`s · exp(log_rates[h] · |q - k|)`, of scores `[batch, heads, q_len, kv_len]`."""
    scores, rates = np.asarray(s, np.float64), np.asarray(log_rates, np.float64)
    q, k = places(*scores.shape[2:])
    return np.asarray(scores * np.exp(rates[:, None, None] * abs(q - k)))
