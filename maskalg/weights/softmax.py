"""The softmax, as a weight function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weight:
    """What turns a score into a weight.

    The output of a query is the sum of w(s) * v over the kept keys, divided by their sum of w(s)
    when `normalised`.
    """

    name: str
    normalised: bool


softmax = Weight("softmax", normalised=True)
"""w(s) = exp(s), normalised. A query that keeps nothing has output 0 and lse -inf."""
