"""Attention with linear biases."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...errors import MaskTypeError
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import BATCH, HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import plain_number
from ...formula.printing import called
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import BATCH_SIZE, HEADS, BiasRows, Floats, places

__all__ = ["alibi"]


def alibi(slopes: Entries) -> Bias:
    """s + slopes[head] * (k - q): distant keys before the query count less.

    Args:
        slopes: floating `[heads]` or `[batch, heads]`; receives a gradient when it requires one.

    Raises:
        TypeError: slopes that are no floating-point tensor.
        ValueError: slopes of another rank; at the call, of another number of heads.

    Source: Press, Smith, Lewis, "Train Short, Test Long" (2021).

    Examples:
        >>> causal & sliding(64) + alibi(torch.tensor([0.5, 0.25]))
        causal & sliding(64) + alibi(slopes[2])
    """
    if isinstance(plain_number(slopes), (int, float)):
        raise MaskTypeError(
            f"alibi: slopes must be a floating-point tensor [heads], got {slopes!r}. Write "
            "alibi(2.0 ** (-8 / n * torch.arange(1, n + 1))) for the slopes of the paper for n "
            "heads."
        )
    table = real_table("alibi", "slopes", slopes, (1, 2), "[heads] or [batch, heads]")
    slope = nodes.read(table, *(BATCH, HEAD)[2 - table.tensor.ndim :])
    added = nodes.mul(slope, nodes.subtract(K, Q))
    return Bias(TRUE, nodes.add(SCORE, added), called("alibi", table))


# The second definition, and the rows of the catalogue.


def alibi_by_hand(slopes: ArrayLike, **at: int) -> Floats:
    """`slopes[h] · (k − q)`; `slopes` is `[heads]` or `[batch, heads]`."""
    q, k = places(**at)
    m = np.atleast_2d(np.asarray(slopes, np.float64))
    return m[:, :, None, None] * (k - q)


def rows() -> BiasRows:
    random = np.random.default_rng(1)
    slopes, of_entries = (
        random.uniform(0.2, 1.5, HEADS),
        random.uniform(0.2, 1.5, (BATCH_SIZE, HEADS)),
    )
    return {
        "alibi": (alibi, alibi_by_hand, (slopes,)),
        "alibi of batch entries": (alibi, alibi_by_hand, (of_entries,)),
    }
