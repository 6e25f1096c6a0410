"""Sequences with images or clips: spans that see each other, kinds of tokens, and media apart."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.derived import Derived
from ....formula.entries import Entries, booleans, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import INT32_MAX, Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, entries_within, integer, positions, shown
from ...by_hand import ENTRIES, IDS, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["spans", "modality", "media"]


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


def modality(types: Entries, allowed: Entries) -> Mask:
    """allowed[types[q], types[k]]: which kind of token sees which.

    Args:
        types: integer tensor `[length]` or `[batch, length]`: the kind of each position.
        allowed: Boolean tensor `[kinds, kinds]`, queries by keys.

    Raises:
        ValueError: on the CPU, types outside of `allowed`. On a GPU and in compiled functions types
            are not checked, and such a type counts as the nearest kind.

    Source: mixtures of modalities, such as Chameleon and Mixture-of-Transformers.
    """
    kinds = positions("modality", "types", types)
    allowed = booleans("modality", "allowed", allowed)
    if allowed.ndim != 2 or allowed.shape[0] != allowed.shape[1]:
        raise errors.tensor_shape("modality", "allowed", list(allowed.shape), "[kinds, kinds]")
    entries_within("modality", "types", kinds.tensor, 0, len(allowed))
    table = Table("allowed", allowed)
    node = nodes.read(table, at(kinds, Q), at(kinds, K))
    return Mask(node, SCORE, called("modality", kinds, table))


def media(starts: Entries, tokens: int, ends: Entries | None = None) -> Mask:
    """starts[k // tokens] <= q < ends[k // tokens]: text sees the medium that belongs to it.

    Keys are the tokens of the media, one medium after the other; queries are positions of the text.

    Args:
        starts: integer tensor `[media]` or `[batch, media]`: the first query that sees each medium.
        tokens: keys of one medium, >= 1.
        ends: one past the last query that sees it; by default the start of the next medium, so that
            a query sees the last medium before it, as in Flamingo. `starts` must then ascend.

    Source: Flamingo (Alayrac et al., 2022).
    """
    first = positions("media", "starts", starts)
    past = Derived("ends", (first,), _next) if ends is None else positions("media", "ends", ends)
    if first.tensor.shape != past.tensor.shape:
        found = list(past.tensor.shape)
        raise errors.tensor_shape("media", "ends", found, str(list(first.tensor.shape)))
    count, printed = integer(f"media(…, {shown(tokens)})", "tokens", tokens, low=1)
    medium = nodes.floordiv(K, count)
    node = nodes.conjunction(nodes.ge(Q, at(first, medium)), nodes.gt(at(past, medium), Q))
    return Mask(node, SCORE, called("media", first, past, printed))


def _next(starts: torch.Tensor) -> torch.Tensor:
    """The start of the next medium; after the last one, the largest int32."""
    if readable(starts) and bool((starts.diff(dim=-1) < 0).any()):
        raise errors.MaskValueError(
            "media: entries of starts must ascend. Sort them, or give both ends of each interval."
        )
    ends = torch.full_like(starts, INT32_MAX)
    ends[..., :-1] = starts[..., 1:]
    return ends


# The second definition, and the rows of the catalogue.


def spans_by_hand(ids: ArrayLike, **at: int) -> Bools:
    """`ids[q] = ids[k] ≥ 0`."""
    rows = padded(ids, 2)
    return pairs(
        lambda b, h, q, k: entry(rows, b, q) == entry(rows, b, k) and entry(rows, b, k) >= 0,
        len(rows),
        **at,
    )


def modality_by_hand(types: ArrayLike, allowed: ArrayLike, **at: int) -> Bools:
    """`allowed[types[q], types[k]]`."""
    rows, table = padded(types, 2), np.asarray(allowed)
    return pairs(
        lambda b, h, q, k: table[int(entry(rows, b, q)), int(entry(rows, b, k))], len(rows), **at
    )


def media_by_hand(
    starts: ArrayLike, tokens: int, ends: ArrayLike | None = None, **at: int
) -> Bools:
    """`starts[k // tokens] ≤ q < ends[k // tokens]`; without ends, up to the next start."""
    first = padded(starts, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        medium = k // tokens
        if q < entry(first, b, medium):
            return False
        if ends is not None:
            return q < entry(padded(ends, 2), b, medium)
        return medium == first.shape[1] - 1 or q < entry(first, b, medium + 1)

    return pairs(keep, len(first), **at)


def rows() -> MaskRows:
    images = np.where(np.isin(IDS, (1, 3, 5)), IDS, -1)
    kinds = np.random.default_rng(21).integers(0, 3, ENTRIES)
    allowed = np.array([[True, False, False], [True, True, False], [True, False, True]])
    starts = np.array([0, 4, 4, 11, 19, 20, 33, 40, 50, 61, 62])
    return {
        "image spans": row(spans, spans_by_hand, images),
        "modality": row(modality, modality_by_hand, kinds, allowed),
        "media before the text": row(media, media_by_hand, starts, 6),
        "media with both ends": row(media, media_by_hand, starts, 6, starts + 9),
    }
