"""Weights without an exponential: rectified scores, their squares, and scores as they are."""

from __future__ import annotations

from typing import Final

from ...formula import nodes
from ...formula.nodes import SCORE, TRUE, Node
from ...formula.printing import named
from ..algebra import Bias
from .weight import Weight

_POSITIVE: Final = nodes.maximum(SCORE, nodes.const(0.0))


def _of(name: str, formula: Node) -> Weight:
    return Weight(name, Bias(TRUE, formula, named(name)), normalised=False)


relu: Final = _of("relu", _POSITIVE)
"""w(s) = max(s, 0), not normalised. Source: Wortsman et al. (2023); scale v by 1 / kv_len."""

relu_squared: Final = _of("relu_squared", nodes.mul(_POSITIVE, _POSITIVE))
"""w(s) = max(s, 0)^2, not normalised. Source: Hua et al., "Transformer Quality in Linear Time"."""

linear: Final = _of("linear", SCORE)
"""w(s) = s, not normalised; with `decay(rates)` a retention. Source: Sun et al. (2023)."""
