"""Masks on the distance between query and key, and on chunks of positions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...errors import MaskValueError, below
from ...formula import nodes
from ...formula.entries import Entries
from ...formula.nodes import SCORE, K, Node, Q
from ...formula.parameters import Parameter
from ...formula.printing import called
from ..algebra import Mask, named_mask
from ..arguments import integer, integer_or_each, shown
from ..by_hand import Bools, MaskRows, entry, padded, pairs, places, row

__all__ = ["causal", "sliding", "window", "dilated", "strided", "chunked", "block_causal"]

ZERO = nodes.const(0)
DISTANCE = nodes.subtract(Q, K)

causal = named_mask(
    "causal",
    nodes.ge(Q, K),
    "q >= k: each query keeps itself and everything before it.\n\n"
    "Positions count from the first query and key; `causal.shift(q=kv_len - q_len)` aligns the\n"
    "last ones.",
)
"""q >= k: each query keeps itself and everything before it. Positions count from the first query
and key (top left), also where there are more keys than queries. FlashAttention aligns the last ones
(bottom right): write `causal.shift(q=kv_len - q_len)`."""


def sliding(window: int | Entries) -> Mask:
    """|q - k| < window: with `causal`, `window` keys, the query's own included.

    Args:
        window: number of keys, >= 1; an integer, or an integer tensor `[heads]` or
            `[batch, heads]` on the device of the inputs. Entries that were not checked (on a
            GPU, or written later) count as 1 if they are less.

    Source: Longformer (Beltagy et al., 2020), which has windows that grow from layer to layer;
    Mistral, Gemma.

    Examples:
        >>> (causal & sliding(2)).to_dense(4)[0, 0].int().tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    w, printed = integer_or_each(f"sliding({shown(window)})", "window", window, 1, "heads")
    last = nodes.subtract(w, nodes.const(1))
    node = nodes.conjunction(nodes.ge(last, DISTANCE), nodes.ge(nodes.add(DISTANCE, last), ZERO))
    return Mask(node, SCORE, called("sliding", printed))


def window(left: int | None, right: int | None) -> Mask:
    """-left <= k - q <= right, both ends kept; `None` leaves a side open.

    Positions count from the first query and key (top left). FlashAttention aligns the last ones
    (bottom right): write `window(left, right).shift(q=kv_len - q_len)`, and None for its -1.

    Args:
        left: keys before the query that are kept, >= 0, or None for all.
        right: keys after the query that are kept, >= 0, or None for all.

    Source: `window_size` of FlashAttention.
    """
    call = f"window({shown(left)}, {shown(right)})"
    ahead = nodes.subtract(K, Q)
    limits: list[Node] = []
    printed: list[Parameter | str] = []
    for name, value in (("left", left), ("right", right)):
        if value is None:
            printed.append("None")
            continue
        if type(value) is int and value < 0:
            raise MaskValueError(f"{below(call, name, value, 0)} None is unlimited.")
        limit, parameter = integer(call, name, value, low=0)
        printed.append(parameter)
        distance = nodes.negate(ahead) if name == "left" else ahead
        limits.append(nodes.ge(limit, distance))
    return Mask(nodes.conjunction(*limits), SCORE, called("window", *printed))


def dilated(dilation: int) -> Mask:
    """(q - k) mod dilation = 0: every `dilation`-th key, counted from the query's own.

    Args:
        dilation: distance between two kept keys, >= 1.

    Source: dilated sliding windows of Longformer, as `sliding(w) & dilated(d)`.
    """
    d, printed = integer(f"dilated({shown(dilation)})", "dilation", dilation, low=1)
    node = nodes.eq(nodes.mod(nodes.subtract(Q, K), d), ZERO)
    return Mask(node, SCORE, called("dilated", printed))


def strided(stride: int) -> Mask:
    """q >= k and (q - k < stride or (q - k) mod stride = 0): near keys, and every stride-th key.

    Args:
        stride: length of the local window and distance of the far keys, >= 1; the mask is sparsest
            at about the square root of the length.

    Source: the strided pattern of Sparse Transformers (Child et al., 2019).
    """
    d, printed = integer(f"strided({shown(stride)})", "stride", stride, low=1)
    distance = nodes.subtract(Q, K)
    near = nodes.gt(d, distance)
    far = nodes.eq(nodes.mod(distance, d), ZERO)
    node = nodes.conjunction(nodes.ge(Q, K), nodes.disjunction(near, far))
    return Mask(node, SCORE, called("strided", printed))


def chunked(chunk: int) -> Mask:
    """q // chunk = k // chunk: attention within chunks of `chunk` positions.

    Args:
        chunk: positions in a chunk, >= 1.

    Source: local layers of Llama 4; block-local attention.
    """
    c, printed = integer(f"chunked({shown(chunk)})", "chunk", chunk, low=1)
    node = nodes.eq(nodes.floordiv(Q, c), nodes.floordiv(K, c))
    return Mask(node, SCORE, called("chunked", printed))


def block_causal(chunk: int) -> Mask:
    """q // chunk >= k // chunk: causal between chunks, everything within one.

    Args:
        chunk: positions in a chunk, >= 1.

    Source: block-autoregressive diffusion and video models.
    """
    c, printed = integer(f"block_causal({shown(chunk)})", "chunk", chunk, low=1)
    node = nodes.ge(nodes.floordiv(Q, c), nodes.floordiv(K, c))
    return Mask(node, SCORE, called("block_causal", printed))


# The second definition, and the rows of the catalogue.


def causal_by_hand(**at: int) -> Bools:
    """`q ≥ k`."""
    q, k = places(**at)
    return q >= k


def sliding_by_hand(w: int, **at: int) -> Bools:
    """`|q − k| < w`."""
    q, k = places(**at)
    return abs(q - k) < w


def window_by_hand(left: int | None, right: int | None, **at: int) -> Bools:
    """`−left ≤ k − q ≤ right`; a side that is None has no bound."""
    q, k = places(**at)
    keep: Bools = q == q
    if left is not None:
        keep = keep & (k - q >= -left)
    if right is not None:
        keep = keep & (k - q <= right)
    return keep


def sliding_per_head_by_hand(w: ArrayLike, **at: int) -> Bools:
    """`|q − k| < w[h]` or `w[b, h]`; an entry below 1 counts as 1."""
    rows = padded(w, 2)
    return pairs(lambda b, h, q, k: abs(q - k) < max(entry(rows, b, h), 1), *rows.shape, **at)


def strided_by_hand(d: int, **at: int) -> Bools:
    """Causal, and near (fewer than `d` back) or a multiple of `d` back."""
    return pairs(lambda b, h, q, k: k <= q and (q - k < d or (q - k) % d == 0), **at)


def dilated_by_hand(d: int, **at: int) -> Bools:
    """`(q − k) mod d = 0`."""
    q, k = places(**at)
    keep: Bools = (q - k) % d == 0
    return keep


def chunked_by_hand(c: int, **at: int) -> Bools:
    """`⌊q / c⌋ = ⌊k / c⌋`."""
    q, k = places(**at)
    keep: Bools = q // c == k // c
    return keep


def block_causal_by_hand(c: int, **at: int) -> Bools:
    """`⌊q / c⌋ ≥ ⌊k / c⌋`."""
    q, k = places(**at)
    keep: Bools = q // c >= k // c
    return keep


def rows() -> MaskRows:
    heads, entries = np.array([1, 4, 9]), np.array([[2, 1, 5], [30, 1, 3]])
    return {
        "causal": (causal, causal_by_hand),
        "sliding": row(sliding, sliding_by_hand, 5),
        "sliding, itself only": row(sliding, sliding_by_hand, 1),
        "sliding per head": row(sliding, sliding_per_head_by_hand, heads),
        "sliding per batch and head": row(sliding, sliding_per_head_by_hand, entries),
        "window": row(window, window_by_hand, 6, 2),
        "window, open to the left": row(window, window_by_hand, None, 3),
        "window, open to the right": row(window, window_by_hand, 4, None),
        "dilated": row(dilated, dilated_by_hand, 3),
        "strided pattern": row(strided, strided_by_hand, 5),
        "strided pattern of every key": row(strided, strided_by_hand, 1),
        "chunked": row(chunked, chunked_by_hand, 6),
        "block causal": row(block_causal, block_causal_by_hand, 6),
    }
