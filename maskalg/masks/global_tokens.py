"""Tokens that see and are seen by everything."""

from __future__ import annotations

from .. import nodes
from ..algebra import Mask
from ..entries import Entries
from ..nodes import SCORE, K, Q
from ..printing import called
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
