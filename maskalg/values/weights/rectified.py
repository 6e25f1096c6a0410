"""Weights without an exponential: rectified scores, their squares, and scores as they are."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...formula import nodes
from ...formula.nodes import SCORE, TRUE, Node
from ...formula.printing import named
from ..algebra import Bias
from ..by_hand import Floats, WeightRows
from ..helped import helped
from .weight import Weight

__all__ = ["relu", "relu_squared", "linear"]

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


def rows() -> WeightRows:
    return {
        "relu": (lambda: relu, relu_by_hand, ()),
        "relu_squared": (lambda: relu_squared, relu_squared_by_hand, ()),
        "linear": (lambda: linear, linear_by_hand, ()),
    }
