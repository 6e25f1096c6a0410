"""Spans of tokens that see each other, such as those of an image."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from ....formula import nodes
from ....formula.derived import Derived
from ....formula.entries import Entries, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, positions
from ...by_hand import IDS, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["spans"]


def spans(ids: Entries) -> Mask:
    """ids[q] = ids[k] >= 0: the tokens of one span see each other; tokens outside spans see none.

    `causal | spans(ids)` is text read from left to right with images seen whole.

    Args:
        ids: integer tensor `[length]` or `[batch, length]`: the span of each position, negative
            outside all spans.

    Source: Transfusion (Zhou et al., 2024); PaliGemma, Gemma 3.
    """
    table = positions("spans", "ids", ids)
    apart = Derived("apart", (table,), _apart)
    same = nodes.eq(at(apart, Q), at(apart, K))
    node = nodes.conjunction(same, nodes.ge(at(table, K), nodes.const(0)))
    return Mask(node, SCORE, called("spans", table))


def _apart(ids: torch.Tensor) -> torch.Tensor:
    """Ids in which each token outside all spans has an id of its own.

    One id for all such tokens would reach from the first of them to the last, and empty blocks
    between spans could be found only by evaluating them.
    """
    ids = ids if ids.dtype == torch.int64 else ids.to(torch.int32)
    if readable(ids) and ids.shape[-1]:
        highest = ids.cummax(dim=-1).values
        begins = ids < 0
        begins[..., 1:] |= ids[..., 1:] != ids[..., :-1]
        # If each span has a higher id than those before it, the spans are numbered in order.
        later = (ids[..., 1:] > highest[..., :-1]) | ~begins[..., 1:] | (ids[..., 1:] < 0)
        if bool(later.all()):
            return begins.cumsum(dim=-1, dtype=torch.int32)
    place = torch.arange(ids.shape[-1], device=ids.device, dtype=ids.dtype)
    return torch.where(ids < 0, -1 - place, ids)


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
    return {"image spans": row(spans, spans_by_hand, ids)}
