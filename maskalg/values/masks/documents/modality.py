"""Masks of mixed text, images and other media."""

from __future__ import annotations

import torch

from .... import errors
from ....formula import nodes
from ....formula.derived import Derived
from ....formula.entries import Entries, booleans, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import INT32_MAX, Table
from ....formula.printing import called
from ...algebra import Mask
from ..arguments import at, entries_within, integer, positions, shown


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


def modality(types: Entries, allowed: Entries) -> Mask:
    """allowed[types[q], types[k]]: which kind of token sees which.

    Args:
        types: integer tensor `[length]` or `[batch, length]`: the kind of each position.
        allowed: Boolean tensor `[kinds, kinds]`, queries by keys.

    Raises:
        ValueError: on the CPU, types outside of `allowed`. On a GPU and in compiled functions,
            where nothing waits for entries, they are taken for the nearest kind.

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
    """The start after each one; none after the last."""
    if readable(starts) and bool((starts.diff(dim=-1) < 0).any()):
        raise errors.not_ascending("media", "starts")
    ends = torch.full_like(starts, INT32_MAX)
    ends[..., :-1] = starts[..., 1:]
    return ends
