"""Scores kept within bounds by a hyperbolic tangent."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries, is_listed
from ...formula.nodes import HEAD, SCORE, TRUE, Node
from ...formula.parameters import Parameter, Scalar, plain_number
from ...formula.printing import Label
from ..algebra import Bias
from ..arguments import real_table
from ..by_hand import Floats
from ..index import Index

__all__ = ["softcap"]


def softcap(cap: float | Entries | Index) -> Bias:
    """cap * tanh(s / cap); `softcap(30) @ alibi(m)` caps the biased score.

    Args:
        cap: bound of the result's magnitude, > 0: a number; a floating tensor, 0-d or `[heads]`,
            which receives a gradient when it requires one; or an index expression, such as
            `scalar(30.0, "cap")`. Tensors and expressions may be negative, with the same result;
            0 gives NaN.

    Raises:
        TypeError: a cap that is none of these.
        ValueError: a number that is not above 0, a tensor of another rank.

    Source: Gemma 2 (2024).

    Examples:
        >>> softcap(30.0) @ alibi(slopes)
        softcap(30.0) @ alibi(slopes[2])
    """
    c, printed = _cap(cap)
    node = nodes.mul(c, nodes.call("tanh", nodes.divide(SCORE, c)))
    return Bias(TRUE, node, Label("call", ("softcap", printed)))


def _cap(cap: object) -> tuple[Node, Parameter | Label]:
    """The cap in a formula, and as the label prints it."""
    if isinstance(cap, Index):
        return nodes.call("float", cap.node), Label("formula", (cap.node,))
    if is_listed(cap):
        table = real_table("softcap", "cap", cap, (0, 1), "[] or [heads]")
        return nodes.read(table, *[HEAD][: table.tensor.ndim]), table
    cap = plain_number(cap)
    if isinstance(cap, bool) or not isinstance(cap, (int, float)):
        raise errors.MaskTypeError(
            f"softcap({cap!r}): cap must be a positive number, a floating-point tensor or an index "
            f"expression, got {cap!r} of type {type(cap).__name__}."
        )
    if not cap > 0 or cap == float("inf"):
        raise errors.not_positive(f"softcap({cap!r})", "cap", cap)
    limit = Scalar("cap", float(cap), positive=True)
    return nodes.scalar(limit), limit


# The second definition; it takes the score, for it is no sum.


def softcap_by_hand(s: ArrayLike, c: float) -> Floats:
    """`c · tanh(s / c)`, a score of any shape."""
    return np.asarray(c * np.tanh(np.asarray(s, np.float64) / c), np.float64)
