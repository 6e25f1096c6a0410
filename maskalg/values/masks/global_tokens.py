"""Tokens that keep every key and are kept by every query."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K, Q
from ...formula.printing import called
from .. import arguments
from ..algebra import Mask
from ..by_hand import ENTRIES, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["global_tokens"]


def global_tokens(flags: Entries) -> Mask:
    """flags[q] or flags[k]: marked tokens see all keys, and all queries see marked tokens.

    `sliding(w) | global_tokens(flags)` is Longformer's mask.

    Args:
        flags: Boolean tensor `[length]` or `[batch, length]`, indexed by global position.

    Source: Longformer (Beltagy et al., 2020); BigBird (Zaheer et al., 2020).
    """
    table = arguments.flags("global_tokens", "flags", flags)
    node = nodes.disjunction(arguments.at(table, Q), arguments.at(table, K))
    return Mask(node, SCORE, called("global_tokens", table))


# The second definition, and the rows of the catalogue.


def global_tokens_by_hand(flags: ArrayLike, **at: int) -> Bools:
    """`flags[q]` or `flags[k]`."""
    rows = padded(flags, 2)
    return pairs(lambda b, h, q, k: entry(rows, b, q) or entry(rows, b, k), len(rows), **at)


def rows() -> MaskRows:
    flags = np.random.default_rng(21).random(ENTRIES) < 0.08
    per_batch = np.stack([flags, ~flags])
    return {
        "global tokens per batch": row(global_tokens, global_tokens_by_hand, per_batch),
    }
