"""Tokens that see and are seen by everything."""

from __future__ import annotations

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K, Q
from ...formula.printing import called
from ..algebra import Mask
from . import arguments


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
