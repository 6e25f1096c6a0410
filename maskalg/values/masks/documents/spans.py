"""Spans of tokens that see each other, such as those of an image."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from ....formula import nodes
from ....formula.entries import Entries
from ....formula.nodes import SCORE, K, Q
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, positions
from ...by_hand import IDS, Bools, MaskRows, entry, padded, pairs

__all__ = ["spans"]


def spans(ids: Entries) -> Mask:
    """ids[q] = ids[k] >= 0: the tokens of one span see each other, those outside see none.

    `causal | spans(ids)` is text read from left to right with images seen whole.

    Args:
        ids: integer tensor `[length]` or `[batch, length]`: the span of each position, negative
            outside all spans.

    Source: Transfusion (Zhou et al., 2024); PaliGemma, Gemma 3.
    """
    table = positions("spans", "ids", ids)
    of_key = at(table, K)
    node = nodes.conjunction(nodes.eq(at(table, Q), of_key), nodes.ge(of_key, nodes.const(0)))
    return Mask(node, SCORE, called("spans", table))


# The second definition, and the rows of the catalogue.


def spans_by_hand(ids: ArrayLike, **at: int) -> Bools:
    """`ids[q] = ids[k] ≥ 0`."""
    rows = padded(ids, 2)
    return pairs(
        lambda b, h, q, k: entry(rows, b, q) == entry(rows, b, k) and entry(rows, b, k) >= 0,
        len(rows),
        **at,
    )


def rows() -> MaskRows:
    ids = np.where(np.isin(IDS, (1, 3, 5)), IDS, -1)
    return {"image spans": (spans(ids), partial(spans_by_hand, ids))}
