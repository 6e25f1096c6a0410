"""Masks whose positions start again at 0 in every packed document."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.derived import Derived
from ....formula.entries import Entries
from ....formula.nodes import SCORE, K, Node, Q
from ....formula.parameters import Order, Parameter
from ....formula.printing import Label
from ....formula.separation import by_distance
from ...algebra import Mask
from ...arguments import at, positions
from ...by_hand import ENTRIES, IDS, Bools, MaskRow, MaskRows, entry, padded, pairs
from ...helped import Ways
from ..local import causal, chunked, sliding, window
from ..prefix import prefix
from .document import CUTS, packed, varlen_by_hand

__all__ = ["per_document"]


class _PerDocument(Ways, name="per_document"):
    """A mask within every packed document: `per_document(causal | prefix(3), ids)`.

    From ids, or from cumulative lengths by `per_document.from_cu_seqlens`.
    """

    __slots__ = ()

    def __call__(
        self,
        mask: Mask,
        ids: Entries,
        kv_ids: Entries | None = None,
        *,
        align: Literal["last", "first"] = "last",
        order: Order | None = None,
    ) -> Mask:
        """ids[q] = ids[k], and `mask` at positions counted from the first token of the document.

        `per_document(causal | prefix(3), ids)` is a prefix language model in every document of a
        packed sequence. Where `mask` depends on q - k alone this is `mask & document(ids)`.

        Args:
            mask: the mask within a document; it may not read tensors at positions.
            ids: integer tensor `[length]` or `[batch, length]`, as in `document`. Positions are
                counted from the first occurrence of an id, also after writes to the entries.
            kv_ids: the ids of the keys, if they differ from those of the queries. Positions are
                then counted from the document's first key, and its last query stands at its last
                key (bottom right), as in FlashAttention: with `causal`, two queries and five keys
                of a document are the last two steps of five.
            align: "first" puts the first query of a document at its first key (top left), as
                xformers' `BlockDiagonalCausalMask` and `causal_upper_left` of torch do.
            order: the declared order of the ids, as in `document`.

        Raises:
            TypeError, ValueError: `ids` of another type, shape or order; a mask that reads a tensor
                at positions, since its length cannot be checked here; another `align`.

        Source: document masks of attention-gym, which restart positions at cumulative lengths.

        Examples:
            >>> chunk = per_document(causal, [4, 7, 7], [4, 4, 7, 7, 7])
            >>> chunk.to_dense(3, 5)[0, 0].int().tolist()
            [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]
        """
        call = "per_document(…)"
        if align not in _AHEAD:
            raise errors.MaskValueError(
                f"{call}: align must be one of {', '.join(map(repr, _AHEAD))}, got {align!r}. It "
                "says whether the last or the first query and key of a document share a position."
            )
        if not isinstance(mask, Mask):
            raise errors.tensor_dtype(call, "mask", type(mask).__name__, "a mask")
        for node in mask.mask_node.walk():
            if node.op == "read" and any(arg.indices() & {"q_idx", "kv_idx"} for arg in node.args):
                read = node.own[0]
                given = read.sources[0] if isinstance(read, Derived) else read
                raise errors.MaskValueError(
                    f"{call}: the inner mask reads {given.name} at positions, and a document may "
                    f"have more positions than {given.name} has entries. Inside documents use "
                    f"masks of distances, lengths and chunks; combine masks on tensors outside: "
                    f"{call} & other."
                )
        queries = positions(call, "ids", ids, order)
        keys = queries if kv_ids is None else positions(call, "kv_ids", kv_ids, order)
        query = Q
        if keys is not queries:
            query = nodes.add(Q, at(Derived("ahead", (queries, keys), _AHEAD[align]), Q))
        start = nodes.const(0)
        if not by_distance(mask.mask_node):
            start = at(Derived("start", (queries, keys), _first), Q)
        inner = _restarted(mask.mask_node, query, start)
        same = nodes.eq(at(queries, Q), at(keys, K))
        printed: tuple[Parameter | str, ...] = (queries,) if keys is queries else (queries, keys)
        if align != "last":
            printed += ("align='first'",)
        label = Label("call", ("per_document", mask.label, *printed))
        return Mask(nodes.conjunction(inner, same), SCORE, label)

    def from_cu_seqlens(
        self,
        mask: Mask,
        cu_seqlens: Entries,
        kv_cu_seqlens: Entries | None = None,
        *,
        total: int | tuple[int, int] | None = None,
        align: Literal["last", "first"] = "last",
    ) -> Mask:
        """`mask` in documents between consecutive entries of `cu_seqlens` `[documents + 1]`.

        `per_document.from_cu_seqlens(causal, cu_seqlens_q, cu_seqlens_k)` is variable-length
        attention with `causal=True`; with `window(left, right)` in place of `causal`, that is its
        `window_size`. The last query of a document stands at its last key. If a document has more
        queries than keys, its first queries stand before its first key, at positions below 0, where
        `causal` keeps nothing.

        Args:
            mask: as in `per_document`.
            cu_seqlens: as in `document.from_cu_seqlens`; likewise `kv_cu_seqlens` and `total`.
            align: as in `per_document`.

        Raises:
            TypeError, ValueError: what `per_document` and `document.from_cu_seqlens` raise.

        Source: `flash_attn_varlen_func` of FlashAttention.

        Examples:
            >>> chunk = per_document.from_cu_seqlens(causal, [0, 1, 3], [0, 2, 5])
            >>> chunk.to_dense(3, 5)[0, 0].int().tolist()
            [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]]
        """
        call = "per_document.from_cu_seqlens"
        atom = partial(self, mask, align=align, order="ascending")
        return packed(call, atom, cu_seqlens, kv_cu_seqlens, total)


def _restarted(mask: Node, query: Node, start: Node) -> Node:
    """`mask` with `query` in place of q_idx, and positions counted from `start`.

    Query and key share a document, and so its start: their distance does not change.
    """
    return _moved(mask, query, start)


def _moved(node: Node, query: Node, by: Node | None) -> Node:
    """See `_restarted`; positions are counted from 0 without `by`."""

    def replace(node: Node) -> Node | None:
        if by is not None and node.op in ("ge", "gt", "eq") and by_distance(node):
            return _moved(node, query, None)
        if node.op != "index" or node.data not in ("q_idx", "kv_idx"):
            return None
        place = query if node.data == "q_idx" else node
        return place if by is None else nodes.subtract(place, by)

    return nodes.substitute(node, replace)


def _last_ahead(ids: torch.Tensor, kv_ids: torch.Tensor) -> torch.Tensor:
    """By how much the last key of each query's document comes after its last query."""
    return _ends(ids, kv_ids)[1] - _ends(ids, ids)[1]


def _first_ahead(ids: torch.Tensor, kv_ids: torch.Tensor) -> torch.Tensor:
    """By how much the first key of each query's document comes after its first query."""
    return _ends(ids, kv_ids)[0] - _ends(ids, ids)[0]


_AHEAD: Final = {"last": _last_ahead, "first": _first_ahead}


def _first(ids: torch.Tensor, kv_ids: torch.Tensor) -> torch.Tensor:
    """The first key of each query's document."""
    return _ends(ids, kv_ids)[0]


def _ends(ids: torch.Tensor, kv_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each of `ids` the first and last place in `kv_ids` with the same id, int32.

    The places are arbitrary if no key has the id. The host does not wait for a GPU.
    """
    shape = torch.broadcast_shapes(ids.shape[:-1], kv_ids.shape[:-1])
    # Ids that are bound later may have another integer dtype.
    common = torch.promote_types(ids.dtype, kv_ids.dtype)
    wanted = ids.to(common).expand(*shape, -1).contiguous()
    if kv_ids.shape[-1] == 0:
        none = torch.zeros_like(wanted, dtype=torch.int32)
        return none, none
    given = kv_ids.to(common).expand(*shape, -1)
    order = given.argsort(dim=-1, stable=True)
    arranged = given.gather(-1, order)
    first = torch.searchsorted(arranged, wanted).clamp(max=given.shape[-1] - 1)
    last = (torch.searchsorted(arranged, wanted, right=True) - 1).clamp(min=0)
    return order.gather(-1, first).to(torch.int32), order.gather(-1, last).to(torch.int32)


per_document = _PerDocument()


# The second definition, and the rows of the catalogue.


def per_document_by_hand(inner: Callable[[int, int], bool], ids: ArrayLike, **at: int) -> Bools:
    """Same id, and `inner(q, k)` at positions counted from the first place of the id."""
    rows = padded(ids, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        own = entry(rows, b, q)
        if own != entry(rows, b, k):
            return False
        first = list(rows[b if len(rows) > 1 else 0]).index(own)
        return inner(q - first, k - first)

    return pairs(keep, len(rows), **at)


def rows() -> MaskRows:
    def restarted(mask: Mask, inner: Callable[[int, int], bool], ids: ArrayLike) -> MaskRow:
        return per_document(mask, np.asarray(ids)), partial(per_document_by_hand, inner, ids)

    def of_other_keys(mask: Mask, inner: Callable[[int, int], bool]) -> MaskRow:
        built = per_document.from_cu_seqlens(mask, *CUTS, total=ENTRIES)
        return built, partial(varlen_by_hand, inner, *CUTS)

    recurring = np.random.default_rng(21).integers(0, 4, ENTRIES)
    return {
        "prefix LM per document": restarted(causal | prefix(3), lambda q, k: k <= q or k < 3, IDS),
        "chunks per document": restarted(
            causal & chunked(4), lambda q, k: k <= q and q // 4 == k // 4, IDS
        ),
        "prefix per document that recurs": restarted(
            prefix(4) | sliding(2), lambda q, k: k < 4 or abs(q - k) < 2, recurring
        ),
        "prefix per document per batch": restarted(
            prefix(2), lambda q, k: k < 2, np.stack([IDS, recurring])
        ),
        "causal per document, of other keys": of_other_keys(causal, lambda q, k: k <= q),
        "window per document, of other keys": of_other_keys(
            window(5, 1), lambda q, k: q - 5 <= k <= q + 1
        ),
        "prefix LM per document, of other keys": of_other_keys(
            causal | prefix(3), lambda q, k: k <= q or k < 3
        ),
    }
