"""Language models over a permuted order of the tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K, Q
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import at, positions
from ..by_hand import ENTRIES, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["permutation"]


def permutation(rank: Entries, *, strict: bool = False) -> Mask:
    """rank[q] >= rank[k]: causal in an order given by `rank`, not by the positions.

    Args:
        rank: integer tensor `[length]` or `[batch, length]`: the place of each position in the
            order of prediction.
        strict: rank[q] > rank[k], without the token itself: the query stream of two-stream
            attention. The first token in the order then keeps nothing.

    Source: XLNet (Yang et al., 2019).
    """
    table = positions("permutation", "rank", rank)
    compare = nodes.gt if strict else nodes.ge
    printed = ["strict=True"] if strict else []
    return Mask(compare(at(table, Q), at(table, K)), SCORE, called("permutation", table, *printed))


# The second definition, and the rows of the catalogue.


def permutation_by_hand(rank: ArrayLike, *, strict: bool = False, **at: int) -> Bools:
    """`rank[q] ≥ rank[k]`, or `>` with `strict`."""
    rows = padded(rank, 2)
    return pairs(
        lambda b, h, q, k: entry(rows, b, q) >= entry(rows, b, k) + strict, len(rows), **at
    )


def rows() -> MaskRows:
    rank = np.random.default_rng(21).permutation(ENTRIES)
    return {
        "permutation": row(permutation, permutation_by_hand, rank),
        "permutation, query stream": row(permutation, permutation_by_hand, rank, strict=True),
    }
