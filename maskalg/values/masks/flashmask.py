"""FlashMask's format: for every key, the ranges of queries it is hidden from."""

from __future__ import annotations

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries, integers
from ...formula.nodes import BATCH, HEAD, SCORE, K, Node, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Mask
from .arguments import shown

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
        causal: which of the forms it is.

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
