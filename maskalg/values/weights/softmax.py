"""The softmax, and the softmax with a logit that takes weight away from the keys."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...formula.entries import Entries
from ..by_hand import HEADS, Floats, WeightRows
from ..helped import helped
from .weight import Weight, logit

__all__ = ["softmax", "softmax_plus_one", "softmax_with_sink"]

softmax: Final = helped(
    Weight("softmax"),
    "w(s) = exp(s), normalised. A query that keeps nothing has output 0 and lse -inf.",
)
"""w(s) = exp(s), normalised. A query that keeps nothing has output 0 and lse -inf."""

softmax_plus_one: Final = helped(
    Weight("softmax_plus_one", sink=0.0),
    "exp(s) / (1 + sum of exp(s)): a query may attend to nothing. Source: Miller (2023).",
)
"""exp(s) / (1 + sum of exp(s)): a query may attend to nothing. Source: Miller (2023)."""


def softmax_with_sink(logits: float | Entries) -> Weight:
    """exp(s) / (exp(logit) + sum of exp(s)), with one more logit per head that has no value.

    The returned lse is that of the scores, without the sink.

    Args:
        logits: floating `[heads]`, or one number for all heads; a tensor receives a gradient when
            it requires one.

    Source: gpt-oss (2025); StreamingLLM's zero sink (2023) is a logit of 0.

    Examples:
        >>> out = attention(q, k, v, causal, weight=softmax_with_sink(torch.zeros(2)))
    """
    return Weight("softmax_with_sink", sink=logit("softmax_with_sink", "logits", logits))


# The second definition, and the rows of the catalogue.


def softmax_by_hand(s: Floats) -> Floats:
    """`exp(s) / Σ exp(s)`; nothing where no key is kept."""
    weights = np.exp(s)
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total))


def softmax_plus_one_by_hand(s: Floats) -> Floats:
    """`exp(s) / (1 + Σ exp(s))`."""
    weights = np.exp(s)
    return np.asarray(weights / (1 + weights.sum(-1, keepdims=True)))


def softmax_with_sink_by_hand(s: Floats, logits: float | Floats) -> Floats:
    """`exp(s) / (exp(logits[h]) + Σ exp(s))`, of scores `[batch, heads, q_len, kv_len]`."""
    weights, sink = np.exp(s), np.exp(np.reshape(logits, (-1, 1, 1)))
    return np.asarray(weights / (sink + weights.sum(-1, keepdims=True)))


def rows() -> WeightRows:
    logits = np.random.default_rng(1).normal(size=HEADS)
    return {
        "softmax": (lambda: softmax, softmax_by_hand, ()),
        "softmax_plus_one": (lambda: softmax_plus_one, softmax_plus_one_by_hand, ()),
        "softmax_with_sink": (softmax_with_sink, softmax_with_sink_by_hand, (logits,)),
        "sink-number": (
            lambda: softmax_with_sink(1.5),
            lambda s: softmax_with_sink_by_hand(s, 1.5),
            (),
        ),
    }
