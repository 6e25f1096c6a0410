"""FlashMask's format: for every key, the ranges of queries it is hidden from."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .... import errors
from ....formula import nodes
from ....formula.entries import Entries, integers
from ....formula.nodes import BATCH, HEAD, SCORE, K, Node, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import shown
from ...by_hand import BATCH_SIZE, ENTRIES, HEADS, Bools, MaskRow, MaskRows, pairs

__all__ = ["flashmask"]

COLUMNS = {True: (1, 2), False: (2, 4)}


def flashmask(startend_row_indices: Entries, *, causal: bool) -> Mask:
    """The mask of PaddlePaddle's `flashmask_attention(…, startend_row_indices, causal=causal)`.

    Key k is hidden from the queries of up to two half-open ranges. The last dimension holds

        causal=True    1: [start]          hidden from q >= start
                       2: [start, end]     hidden from start <= q < end
        causal=False   2: [start, end]     hidden from q >= start and from q < end
                       4: [s0, e0, s1, e1] hidden from s0 <= q < e0 and from s1 <= q < e1

    and with `causal` keys after the query (k > q, both counted from 0) are hidden too. In the
    paper's names the columns are LTS, LTE, UTS, UTE; in the third form LTS and UTE.

    Args:
        startend_row_indices: int32 or int64 `[batch, heads, keys, 1, 2 or 4]`; batch and heads of
            size 1 are broadcast. Heads are those of the queries: repeat the entries of grouped
            key heads.
        causal: True for the first two forms, False for the last two.

    `to_flashmask` writes the format.

    Source: FlashMask (Wang et al., 2024).
    """
    call = f"flashmask(…, causal={shown(causal)})"
    tensor = integers(call, "startend_row_indices", startend_row_indices)
    if tensor.ndim != 4 or tensor.shape[3] not in COLUMNS[bool(causal)]:
        wanted = "[batch, heads, keys, 1 or 2]" if causal else "[batch, heads, keys, 2 or 4]"
        raise errors.tensor_shape(call, "startend_row_indices", list(tensor.shape), wanted)
    table = Table("rows", tensor)

    def column(number: int) -> Node:
        return nodes.read(table, BATCH, HEAD, K, nodes.const(number))

    def outside(number: int) -> Node:
        return nodes.disjunction(nodes.gt(column(number), Q), nodes.ge(Q, column(number + 1)))

    count = tensor.shape[3]
    if causal:
        seen = outside(0) if count == 2 else nodes.gt(column(0), Q)
        node = nodes.conjunction(nodes.ge(Q, K), seen)
    elif count == 2:
        node = nodes.conjunction(nodes.gt(column(0), Q), nodes.ge(Q, column(1)))
    else:
        node = nodes.conjunction(outside(0), outside(2))
    return Mask(node, SCORE, called("flashmask", table, f"causal={bool(causal)}"))


# The second definition, and the rows of the catalogue.


def flashmask_by_hand(indices: ArrayLike, causal: bool, **at: int) -> Bools:
    """Keys hidden from ranges of queries; `indices` is `[batch, heads, keys, 1, 2 or 4]`."""
    given = np.asarray(indices)
    forms = {
        (True, 1): lambda c, end: [(c[0], end)],
        (True, 2): lambda c, end: [(c[0], c[1])],
        (False, 2): lambda c, end: [(c[0], end), (0, c[1])],
        (False, 4): lambda c, end: [(c[0], c[1]), (c[2], c[3])],
    }

    def keep(b: int, h: int, q: int, k: int) -> bool:
        columns = given[b if len(given) > 1 else 0, h if given.shape[1] > 1 else 0, k]
        hidden = list(forms[causal, len(columns)](columns, q + 1))
        return not any(low <= q < high for low, high in hidden) and not (causal and k > q)

    return pairs(keep, given.shape[0], given.shape[1], **at)


def rows() -> MaskRows:
    def row(indices: NDArray[np.int64], causal: bool) -> MaskRow:
        mask = flashmask(indices.astype(np.int32), causal=causal)
        return mask, partial(flashmask_by_hand, indices, causal)

    random = np.random.default_rng(21)
    one = random.integers(0, ENTRIES + 1, (BATCH_SIZE, HEADS, ENTRIES, 1))
    four = np.sort(random.integers(0, ENTRIES + 1, (BATCH_SIZE, 1, ENTRIES, 4)), axis=-1)
    return {
        "FlashMask, causal from a row on": row(one, True),
        "FlashMask, causal between rows": row(four[..., 1:3], True),
        "FlashMask, from below and above": row(four[..., 2:0:-1], False),
        "FlashMask, two ranges": row(four[..., (2, 3, 0, 1)], False),
    }
