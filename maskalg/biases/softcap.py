"""Scores kept within bounds by a hyperbolic tangent."""

from __future__ import annotations

from .. import errors, nodes
from ..algebra import Bias
from ..nodes import SCORE, TRUE
from ..parameters import Scalar
from ..printing import called


def softcap(cap: float) -> Bias:
    """cap * tanh(s / cap); `softcap(30) @ alibi(m)` caps the biased score.

    Args:
        cap: bound of the result's magnitude, > 0.

    Source: Gemma 2 (2024).

    Examples:
        >>> softcap(30.0) @ alibi(slopes)
        softcap(30.0) @ alibi(slopes[2])
    """
    if isinstance(cap, bool) or not isinstance(cap, (int, float)):
        raise errors.not_a_positive_number(f"softcap({cap!r})", "cap", cap)
    if not cap > 0 or cap == float("inf"):
        raise errors.not_positive(f"softcap({cap!r})", "cap", cap)
    limit = Scalar("cap", float(cap))
    c = nodes.scalar(limit)
    return Bias(
        TRUE, nodes.mul(c, nodes.call("tanh", nodes.divide(SCORE, c))), called("softcap", limit)
    )
