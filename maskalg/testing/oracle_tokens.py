"""The oracle of masks that tensors over tokens decide: spans, media, trees, shared prefixes.

Written from the formulas alone, as the rest of the oracle is; see `maskalg.testing.oracle`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from .oracle_loops import Bools, entry, padded, pairs


def per_document(inner: Callable[[int, int], bool], ids: ArrayLike, **at: int) -> Bools:
    """Same id, and ``inner(q, k)`` at positions counted from the first place of the id."""
    rows = padded(ids, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        own = entry(rows, b, q)
        if own != entry(rows, b, k):
            return False
        first = list(rows[b if len(rows) > 1 else 0]).index(own)
        return inner(q - first, k - first)

    return pairs(keep, len(rows), **at)


def varlen(
    inner: Callable[[int, int], bool], cu_seqlens: ArrayLike, kv_cu_seqlens: ArrayLike, **at: int
) -> Bools:
    """In each document ``inner(q, k)`` of the last queries of as many steps as it has keys."""
    of_queries, of_keys = np.asarray(cu_seqlens), np.asarray(kv_cu_seqlens)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        for d in range(len(of_queries) - 1):
            if of_queries[d] <= q < of_queries[d + 1] and of_keys[d] <= k < of_keys[d + 1]:
                from_last = int(of_queries[d + 1]) - q
                steps = int(of_keys[d + 1] - of_keys[d])
                return inner(steps - from_last, k - int(of_keys[d]))
        return False

    return pairs(keep, 1, **at)


def padding_mask(mask: ArrayLike, queries: bool | ArrayLike = False, **at: int) -> Bools:
    """``mask[b, k]``, and with ``queries`` ``mask[b, q]`` too, or ``queries[b, q]``."""
    rows = padded(mask, 2)
    own = rows if isinstance(queries, bool) else padded(queries, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        return bool(entry(rows, b, k)) and (queries is False or bool(entry(own, b, q)))

    return pairs(keep, len(rows), **at)


def shared_prefix(ids: ArrayLike, parents: ArrayLike, **at: int) -> Bools:
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


def tree(parents: ArrayLike, prompt: int | Sequence[int] = 0, **at: int) -> Bools:
    """A causal prompt of ``prompt`` tokens, and behind it a tree of tokens that see ancestors."""
    rows, lengths = padded(parents, 2), np.atleast_1d(np.asarray(prompt))

    def keep(b: int, h: int, q: int, k: int) -> bool:
        start = int(lengths[b if len(lengths) > 1 else 0])
        if k < start:
            return k <= q
        if q < start:
            return False
        node, wanted = q - start, k - start
        while node >= 0:
            if node == wanted:
                return True
            node = int(entry(rows, b, node))
        return False

    return pairs(keep, max(len(rows), len(lengths)), **at)


def global_tokens(flags: ArrayLike, **at: int) -> Bools:
    """``flags[q]`` or ``flags[k]``."""
    rows = padded(flags, 2)
    return pairs(lambda b, h, q, k: entry(rows, b, q) or entry(rows, b, k), len(rows), **at)


def spans(ids: ArrayLike, **at: int) -> Bools:
    """``ids[q] = ids[k] ≥ 0``."""
    rows = padded(ids, 2)
    return pairs(
        lambda b, h, q, k: entry(rows, b, q) == entry(rows, b, k) and entry(rows, b, k) >= 0,
        len(rows),
        **at,
    )


def modality(types: ArrayLike, allowed: ArrayLike, **at: int) -> Bools:
    """``allowed[types[q], types[k]]``."""
    rows, table = padded(types, 2), np.asarray(allowed)
    return pairs(
        lambda b, h, q, k: table[int(entry(rows, b, q)), int(entry(rows, b, k))], len(rows), **at
    )


def media(starts: ArrayLike, tokens: int, ends: ArrayLike | None = None, **at: int) -> Bools:
    """``starts[k // tokens] ≤ q < ends[k // tokens]``; without ends, up to the next start."""
    first = padded(starts, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        medium = k // tokens
        if q < entry(first, b, medium):
            return False
        if ends is not None:
            return q < entry(padded(ends, 2), b, medium)
        return medium == first.shape[1] - 1 or q < entry(first, b, medium + 1)

    return pairs(keep, len(first), **at)


def permutation(rank: ArrayLike, *, strict: bool = False, **at: int) -> Bools:
    """``rank[q] ≥ rank[k]``, or ``>`` with ``strict``."""
    rows = padded(rank, 2)
    return pairs(
        lambda b, h, q, k: entry(rows, b, q) >= entry(rows, b, k) + strict, len(rows), **at
    )
