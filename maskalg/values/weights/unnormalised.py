"""Weights of each key for itself: rectified scores, their squares, scores, and sigmoids."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, Node
from ...formula.parameters import Scalar, Table
from ...formula.printing import called, named
from ..algebra import Bias
from ..by_hand import HEADS, Floats, WeightRows
from ..helped import helped
from .weight import Weight, logit

__all__ = ["relu", "relu_squared", "linear", "sigmoid"]

_POSITIVE: Final = nodes.maximum(SCORE, nodes.const(0.0))


def _of(name: str, formula: Node) -> Weight:
    return Weight(name, Bias(TRUE, formula, named(name)), normalised=False)


relu: Final = helped(
    _of("relu", _POSITIVE),
    "w(s) = max(s, 0), not normalised. Source: Wortsman et al. (2023); scale v by 1 / kv_len.",
)
"""w(s) = max(s, 0), not normalised. Source: Wortsman et al. (2023); scale v by 1 / kv_len."""

relu_squared: Final = helped(
    _of("relu_squared", nodes.mul(_POSITIVE, _POSITIVE)),
    'w(s) = max(s, 0)^2, not normalised. Source: Hua et al., "Transformer Quality in Linear Time".',
)
"""w(s) = max(s, 0)^2, not normalised. Source: Hua et al., "Transformer Quality in Linear Time"."""

linear: Final = helped(
    _of("linear", SCORE),
    "w(s) = s, not normalised; with `decay(rates)` a retention. Source: Sun et al. (2023).",
)
"""w(s) = s, not normalised; with `decay(rates)` a retention. Source: Sun et al. (2023)."""


def sigmoid(bias: float | Entries = 0.0) -> Weight:
    """w(s) = 1 / (1 + exp(-(s + bias))), not normalised.

    Args:
        bias: a number, or floating `[heads]`; a tensor receives a gradient when it requires one.
            `-log(kv_len)` makes a new model start like a softmax.

    Source: Ramapuram et al., "Theory, Analysis, and Best Practices for Sigmoid Self-Attention"
    (2024).

    Examples:
        >>> out = attention(q, k, v, causal, weight=sigmoid(-math.log(16)))
    """
    given = logit("sigmoid", "bias", bias)
    if isinstance(given, torch.Tensor):
        table = Table("bias", given)
        added, label = nodes.read(table, HEAD), called("sigmoid", table)
    else:
        number = Scalar("bias", float(given))
        added, label = nodes.scalar(number), called("sigmoid", number)
    value = nodes.call("sigmoid", nodes.add(SCORE, added))
    return Weight("sigmoid", Bias(TRUE, value, label), normalised=False)


# The second definition, and the rows of the catalogue.


def relu_by_hand(s: Floats) -> Floats:
    """`max(s, 0)`."""
    return np.asarray(np.maximum(s, 0))


def relu_squared_by_hand(s: Floats) -> Floats:
    """`max(s, 0)²`."""
    return np.asarray(np.maximum(s, 0) ** 2)


def linear_by_hand(s: Floats) -> Floats:
    """`s`, and 0 for a dropped key."""
    return np.where(np.isneginf(s), 0, s)


def sigmoid_by_hand(s: Floats, bias: float | Floats = 0.0) -> Floats:
    """`1 / (1 + exp(-(s + bias[h])))`, of scores `[batch, heads, q_len, kv_len]`."""
    return np.asarray(1 / (1 + np.exp(-(s + np.reshape(bias, (-1, 1, 1))))))


def rows() -> WeightRows:
    bias = np.random.default_rng(2).normal(size=HEADS)
    return {
        "relu": (lambda: relu, relu_by_hand, ()),
        "relu_squared": (lambda: relu_squared, relu_squared_by_hand, ()),
        "linear": (lambda: linear, linear_by_hand, ()),
        "sigmoid": (lambda: sigmoid(-1.0), lambda s: sigmoid_by_hand(s, -1.0), ()),
        "sigmoid-heads": (sigmoid, sigmoid_by_hand, (bias,)),
    }
