"""The logistic function of the score, each key for itself."""

from __future__ import annotations

import numpy as np
import torch

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE
from ...formula.parameters import Scalar, Table
from ...formula.printing import called
from ..algebra import Bias
from ..by_hand import HEADS, Floats, WeightRows
from .weight import Weight, logit

__all__ = ["sigmoid"]


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


def sigmoid_by_hand(s: Floats, bias: float | Floats = 0.0) -> Floats:
    """`1 / (1 + exp(-(s + bias[h])))`, of scores `[batch, heads, q_len, kv_len]`."""
    return np.asarray(1 / (1 + np.exp(-(s + np.reshape(bias, (-1, 1, 1))))))


def rows() -> WeightRows:
    bias = np.random.default_rng(2).normal(size=HEADS)
    return {
        "sigmoid": (lambda: sigmoid(-1.0), lambda s: sigmoid_by_hand(s, -1.0), ()),
        "sigmoid-heads": (sigmoid, sigmoid_by_hand, (bias,)),
    }
