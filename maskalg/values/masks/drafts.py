"""Training masks of drafters: blocks of drafted tokens beside the sequence they continue."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import at, integer, positions, shown
from ..by_hand import ENTRIES, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["drafts"]


def drafts(anchors: Entries, length: int, block: int) -> Mask:
    """A causal sequence, and after it blocks of drafted tokens that continue it from anchors.

    The sequence stands at positions 0 … length - 1. Block i, of `block` tokens, stands at
    `length + i * block` and drafts the tokens from position `anchors[i]` on: it keeps the keys
    before that position and all of its own block. `drafts(…) & causal` drafts from left to right
    within a block. With the blocks alone as queries, write `drafts(…).shift(q=length)`.

    Args:
        anchors: integer tensor `[blocks]` or `[batch, blocks]`, in any order: how many tokens of
            the sequence each block sees. A number below 1 means none, one above `length` all.
        length: tokens of the sequence, >= 0.
        block: tokens of a block, >= 1.

    The mask reads two tables, made on the device of the anchors without waiting: `seen[q]`, how
    many tokens of the sequence a query sees, and `own_block`, ids in which each block is one
    document.

    Source: training of DFlash (bidirectional blocks) and of block-parallel EAGLE drafters (causal
    ones), which sample anchors in each sequence.

    Examples:
        >>> drafts([2, 0], 3, 2).to_dense(7)[0, 0, 3:].int().tolist()
        [[1, 1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1, 1]]
    """
    call = f"drafts(anchors, {shown(length)}, {shown(block)})"
    given = positions("drafts", "anchors", anchors).tensor
    for name, number, low in (("length", length, 0), ("block", block, 1)):
        integer(call, name, number, low)
    places = torch.arange(length + given.shape[-1] * block, device=given.device)
    of_blocks = given.clamp(0, length).repeat_interleave(block, dim=-1)
    of_sequence = (places[:length] + 1).expand(*given.shape[:-1], -1)
    seen = Table("seen", torch.cat([of_sequence, of_blocks], dim=-1).int())
    blocks = length + (places - length) // block
    own = Table("own_block", torch.where(places < length, places, blocks), order="ascending")
    node = nodes.disjunction(nodes.gt(at(seen, Q), K), nodes.eq(at(own, Q), at(own, K)))
    return Mask(node, SCORE, called("drafts", seen, own))


# The second definition, and the rows of the catalogue.


def drafts_by_hand(anchors: ArrayLike, length: int, block: int, **at: int) -> Bools:
    """A causal sequence; drafted tokens see the tokens before their anchor, and their block."""
    rows = padded(anchors, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        if q < length:
            return k <= q
        own = (q - length) // block
        if k < length:
            return k < entry(rows, b, own)
        return (k - length) // block == own

    return pairs(keep, len(rows), **at)


def rows() -> MaskRows:
    length, block = 23, 4
    count = -(-(ENTRIES - length) // block)
    sampled = np.random.default_rng(22).integers(-1, length + 2, (2, count))
    ordered = np.sort(sampled[0])
    return {
        "drafts of anchors in order": row(drafts, drafts_by_hand, ordered, length, block),
        "drafts of anchors per batch": row(drafts, drafts_by_hand, sampled, length, block),
    }
