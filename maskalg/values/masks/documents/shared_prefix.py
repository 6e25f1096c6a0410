"""Documents that share what stands before them: rollouts of one prompt, turns of one dialogue."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.entries import Entries, integers, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, entries_within, positions
from ...by_hand import IDS, Bools, MaskRows, entry, padded, pairs
from .ancestry import ancestry

__all__ = ["shared_prefix"]


def shared_prefix(ids: Entries, parents: Entries) -> Mask:
    """Causal within one's own document, and everything in the documents it continues.

    A query keeps the keys of its own document up to itself, and all keys of that document's parent,
    of the parent's parent, and so on: one prompt serves all its rollouts, one turn all its answers.

    Args:
        ids: integer tensor `[length]` or `[batch, length]`: the document of each position, an index
            into `parents`.
        parents: integer tensor `[documents]`: the document that each continues, negative for none.
            On a GPU where the ids are, or for both on the CPU, no device is waited for.

    Documents on the CPU that are packed depth first, each right behind what it continues, are
    intervals of queries for every key; others are decided by two tables, as in `tree`. The same
    tiles are visited.

    Raises:
        ValueError: on the CPU, ids that are no index of `parents`, a parent that is no document, a
            circle. On a GPU and in compiled functions, where nothing waits for entries, such an id
            is taken for the nearest, such a parent for none, and a circle goes unnoticed.

    Source: prefix sharing of rollouts in reinforcement learning; Hydragen (Juravsky et al., 2024).
    """
    call = "shared_prefix"
    ids = positions(call, "ids", ids).tensor
    parents = integers(call, "parents", parents)
    if parents.ndim != 1:
        raise errors.tensor_shape(call, "parents", list(parents.shape), "[documents]")
    entries_within(call, "ids", ids, 0, len(parents))
    forest, own = ancestry(call, parents), ids.long().clamp(0, max(len(parents) - 1, 0))
    order, end = (
        entries.to(dtype=torch.int32, device=ids.device)[own]
        for entries in (forest.order, forest.end)
    )
    if readable(order) and bool((order.diff(dim=-1) >= 0).all()):
        # Whatever continues a document follows it at once: one past the last such position.
        last = Table("end", torch.searchsorted(order, end, out_int32=True))
        node = nodes.conjunction(nodes.ge(Q, K), nodes.gt(at(last, K), Q))
        return Mask(node, SCORE, called(call, last))
    places, ends = Table("order", order), Table("end", end)
    of_query, of_key = at(places, Q), at(places, K)
    above = nodes.conjunction(nodes.gt(of_query, of_key), nodes.gt(at(ends, K), of_query))
    within = nodes.conjunction(nodes.eq(of_query, of_key), nodes.ge(Q, K))
    return Mask(nodes.disjunction(within, above), SCORE, called(call, places, ends))


# The second definition, and the rows of the catalogue.


def shared_prefix_by_hand(ids: ArrayLike, parents: ArrayLike, **at: int) -> Bools:
    """Own document causal; everything in the documents that its parents lead to."""
    rows, above = padded(ids, 2), list(np.asarray(parents))

    def keep(b: int, h: int, q: int, k: int) -> bool:
        own, other = int(entry(rows, b, q)), int(entry(rows, b, k))
        if own == other:
            return k <= q
        own = above[own]
        while own >= 0:
            if own == other:
                return True
            own = above[own]
        return False

    return pairs(keep, len(rows), **at)


def rows() -> MaskRows:
    documents = np.array([-1, 0, 0, -1, 3, 4, 3])
    both = np.stack([IDS, 6 - IDS])
    return {
        "shared prefix": (
            shared_prefix(IDS, documents),
            partial(shared_prefix_by_hand, IDS, documents),
        ),
        "shared prefix in any order": (
            shared_prefix(both, documents),
            partial(shared_prefix_by_hand, both, documents),
        ),
    }
