"""The softmax, and the softmax with a logit that takes weight away from the keys."""

from __future__ import annotations

from typing import Final

from ...formula.entries import Entries
from .weight import Weight, logit

softmax: Final = Weight("softmax")
"""w(s) = exp(s), normalised. A query that keeps nothing has output 0 and lse -inf."""

softmax_plus_one: Final = Weight("softmax_plus_one", sink=0.0)
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
