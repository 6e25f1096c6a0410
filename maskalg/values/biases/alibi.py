"""Attention with linear biases."""

from __future__ import annotations

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import HEAD, SCORE, TRUE, K, Q
from ...formula.parameters import plain_number
from ...formula.printing import called
from ..algebra import Bias
from .arguments import real_table


def alibi(slopes: Entries) -> Bias:
    """s + slopes[head] * (k - q): distant keys before the query count less.

    Args:
        slopes: floating `[heads]`; receives a gradient when it requires one.

    Raises:
        TypeError: slopes that are no floating-point tensor.
        ValueError: slopes of another rank; at the call, of another number of heads.

    Source: Press, Smith, Lewis, "Train Short, Test Long" (2021).

    Examples:
        >>> causal & sliding(64) + alibi(torch.tensor([0.5, 0.25]))
        causal & sliding(64) + alibi(slopes[2])
    """
    if isinstance(plain_number(slopes), (int, float)):
        raise errors.slopes_of_heads(slopes)
    table = real_table("alibi", "slopes", slopes, (1,), "[heads]")
    added = nodes.mul(nodes.read(table, HEAD), nodes.subtract(K, Q))
    return Bias(TRUE, nodes.add(SCORE, added), called("alibi", table))
