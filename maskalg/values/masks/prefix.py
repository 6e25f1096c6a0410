"""The first keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import integer_or_each, shown
from ..by_hand import LONGEST, Bools, MaskRows, places, row

__all__ = ["prefix"]


def prefix(length: int | Entries) -> Mask:
    """k < length: every query keeps the first `length` keys.

    `causal | prefix(n)` is a prefix language model; `causal & (sliding(w) | prefix(4))` keeps
    four attention sinks beside a window.

    Args:
        length: an integer >= 0, or an integer tensor `[batch]` or `[batch, heads]` on the device of
            the inputs, whose entries below 0 count as 0.

    Source: prefix language models of T5 (Raffel et al., 2019); StreamingLLM (Xiao et al., 2023).

    Examples:
        >>> (causal | prefix(2)).to_dense(3)[0, 0].int().tolist()
        [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    call = f"prefix({shown(length)})"
    n, printed = integer_or_each(call, "prefix", length, 0, "batch")
    return Mask(nodes.gt(n, K), SCORE, called("prefix", printed))


# The second definition, and the rows of the catalogue.


def prefix_by_hand(n: ArrayLike, **at: int) -> Bools:
    """`k < n`, for one number `n` or for `n[b]` of shape `[batch]`."""
    _, k = places(**at)
    return np.concatenate([k < bound for bound in np.atleast_1d(np.asarray(n))])


def rows() -> MaskRows:
    lengths = np.array([5, LONGEST])
    return {
        "prefix": row(prefix, prefix_by_hand, 11),
        "prefix of nothing": row(prefix, prefix_by_hand, 0),
        "prefix per batch": row(prefix, prefix_by_hand, lengths),
    }
