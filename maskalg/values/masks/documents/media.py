"""Images or clips in a sequence of their own, which the text sees by cross-attention."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.derived import Derived
from ....formula.entries import Entries, readable
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import INT32_MAX
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, integer, positions, shown
from ...by_hand import Bools, MaskRows, entry, padded, pairs, row

__all__ = ["media"]


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
    if readable(starts) and bool((starts[..., 1:] < starts[..., :-1]).any()):
        raise errors.MaskValueError(
            "media: entries of starts must ascend. Sort them, or give both ends of each interval."
        )
    ends = torch.full_like(starts, INT32_MAX)
    ends[..., :-1] = starts[..., 1:]
    return ends


# The second definition, and the rows of the catalogue.


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
    starts = np.array([0, 4, 4, 11, 19, 20, 33, 40, 50, 61, 62])
    return {
        "media before the text": row(media, media_by_hand, starts, 6),
        "media with both ends": row(media, media_by_hand, starts, 6, starts + 9),
    }
