"""Masks that drop padding."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import ArrayLike

from ... import errors
from ...formula import nodes
from ...formula.entries import INTEGER_DTYPES, Entries, as_tensor, kind_of, of_rank
from ...formula.nodes import SCORE, K, Node, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ...formula.watched import watched
from ..algebra import Mask
from ..arguments import at
from ..by_hand import ENTRIES, LONGEST, Bools, MaskRows, entry, padded, pairs, places, row
from ..helped import Ways

__all__ = ["padding"]

REAL_BOUNDS: Final = "maskalg::real_bounds"
"""The operator of `_bounds`. The GPU backend registers a kernel for it when it is loaded."""


class _Padding(Ways, name="padding"):
    """Keys that are no padding: `padding(lengths)`, or `padding.from_mask(attention_mask)`."""

    __slots__ = ()

    def __call__(self, lengths: Entries, *, queries: bool | Entries = False) -> Mask:
        """k < lengths[batch]: right-padded input.

        Args:
            lengths: integer tensor `[batch]`, the number of real tokens of each sequence.
            queries: drop padded queries too (their output is then 0 and their lse -inf): True if
                each sequence has as many queries as keys, or the numbers of real queries, an
                integer tensor `[batch]`.

        Raises:
            TypeError: lengths that are no integer tensor.
            ValueError: a tensor of another rank; at the call, of another batch size.

        Examples:
            >>> padding([3], queries=[2]).to_dense(3)[0, 0].int().tolist()
            [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
        """
        keys = _lengths("lengths", lengths)
        if isinstance(queries, bool):
            return _padded("padding", keys, _first(keys, K), _first(keys, Q) if queries else None)
        of_queries = _lengths("queries", queries)
        return _padded("padding", keys, _first(keys, K), _first(of_queries, Q), of_queries)

    def from_mask(self, attention_mask: Entries, *, queries: bool | Entries = False) -> Mask:
        """attention_mask[batch, k]: real tokens are kept, padding on either side is dropped.

        Args:
            attention_mask: Boolean or integer tensor `[batch, kv_len]` as tokenizers make it: True
                or not 0 for a real token.
            queries: drop padded queries too: True if queries and keys are the same positions, or
                the attention mask `[batch, q_len]` of the queries.

        Raises:
            TypeError: an attention mask that is no Boolean or integer tensor.
            ValueError: a tensor of another rank; at the call, fewer entries than keys.

        Source: `attention_mask` of Hugging Face transformers.

        Examples:
            >>> left = torch.tensor([[0, 1, 1]])
            >>> (causal & padding.from_mask(left)).to_dense(3)[0, 0].int().tolist()
            [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
        """
        call = "padding.from_mask"
        keys = _flags(call, "attention_mask", attention_mask, "[batch, kv_len]")
        if isinstance(queries, bool):
            return _padded(call, keys, at(keys, K), at(keys, Q) if queries else None)
        of_queries = _flags(call, "queries", queries, "[batch, q_len]")
        return _padded(call, keys, at(keys, K), at(of_queries, Q), of_queries)


def _lengths(name: str, lengths: object) -> Table:
    given = as_tensor(lengths)
    if not isinstance(given, torch.Tensor) or given.dtype not in INTEGER_DTYPES:
        wanted = "an int32 or int64 tensor"
        raise errors.MaskTypeError(
            f"{errors.tensor_dtype('padding', name, kind_of(lengths), wanted)} {errors.FROM_MASK}"
        )
    if given.ndim != 1:
        raise errors.MaskValueError(
            f"{errors.tensor_shape('padding', name, list(given.shape), '[batch]')} "
            f"{errors.FROM_MASK}"
        )
    return Table(name, given, low=0)


def _first(lengths: Table, index: Node) -> Node:
    """The first `lengths[batch]` positions."""
    return nodes.gt(nodes.read(lengths, nodes.BATCH), index)


def _flags(call: str, name: str, given: object, wanted: str) -> Table:
    mask = as_tensor(given)
    if not isinstance(mask, torch.Tensor) or mask.dtype.is_floating_point or mask.is_complex():
        raise errors.tensor_dtype(call, name, kind_of(given), "a bool or integer tensor")
    return Table(name, of_rank(call, name, mask, (2,), wanted).to(torch.bool))


def real_bounds(kept: torch.Tensor) -> torch.Tensor:
    """Where the real tokens of each row begin, and the place past the last, int32 `[2, batch]`.

    The second is the first again if padding lies between, and both are 0 without real tokens.

    Args:
        kept: Boolean `[batch, length]`, True at real tokens.
    """
    by_kernel = kept.is_cuda and not watched(kept)
    found: torch.Tensor = torch.ops.maskalg.real_bounds(kept) if by_kernel else _bounds(kept)
    return found


def _bounds(kept: torch.Tensor) -> torch.Tensor:
    length = kept.shape[1]
    if not length:
        return kept.new_zeros((2, len(kept)), dtype=torch.int32)
    entries = kept.view(torch.uint8)
    count, first = entries.sum(dim=1), entries.argmax(dim=1)
    past = torch.where(count > 0, length - entries.flip(1).argmax(dim=1), 0)
    return torch.stack([first, torch.where(count == past - first, past, first)]).to(torch.int32)


torch.library.define(REAL_BOUNDS, "(Tensor kept) -> Tensor")
torch.library.impl(REAL_BOUNDS, "CompositeExplicitAutograd", _bounds)


def _padded(
    call: str, keys: Table, kept: Node, query: Node | None, of_queries: Table | None = None
) -> Mask:
    """The mask of `kept` keys, and of `query` where padded queries are dropped too."""
    if query is None:
        return Mask(kept, SCORE, called(call, keys))
    label = called(call, keys, of_queries or "queries=True")
    return Mask(nodes.conjunction(kept, query), SCORE, label)


padding = _Padding()


# The second definition, and the rows of the catalogue.


def padding_by_hand(lengths: ArrayLike, *, queries: bool | ArrayLike = False, **at: int) -> Bools:
    """`k < lengths[b]` and, with `queries`, `q < lengths[b]`; `lengths` is `[batch]`.

    `queries` may be lengths `[batch]` of their own: `q < queries[b]`.
    """
    q, k = places(**at)
    given = np.atleast_1d(np.asarray(lengths))
    if queries is False:
        return np.concatenate([k < length for length in given])
    own = given if queries is True else np.atleast_1d(np.asarray(queries))
    return np.concatenate([(k < n) & (q < m) for n, m in zip(given, own, strict=True)])


def padding_mask_by_hand(mask: ArrayLike, queries: bool | ArrayLike = False, **at: int) -> Bools:
    """`mask[b, k]`, and with `queries` `mask[b, q]` too, or `queries[b, q]`."""
    rows = padded(mask, 2)
    own = rows if isinstance(queries, bool) else padded(queries, 2)

    def keep(b: int, h: int, q: int, k: int) -> bool:
        return bool(entry(rows, b, k)) and (queries is False or bool(entry(own, b, q)))

    return pairs(keep, len(rows), **at)


def rows() -> MaskRows:
    real = np.stack([np.arange(ENTRIES) >= 11, np.arange(ENTRIES) < 17])
    other = np.flip(real, 1)
    return {
        "padding": row(padding, padding_by_hand, [17, 0]),
        "padding of queries": row(padding, padding_by_hand, [17, LONGEST], queries=True),
        "padding of both": row(padding, padding_by_hand, [17, LONGEST], queries=[LONGEST, 9]),
        "padding on either side": row(padding.from_mask, padding_mask_by_hand, real),
        "padding on either side, of queries": (
            padding.from_mask(real.astype(np.int32), queries=True),
            partial(padding_mask_by_hand, real, queries=True),
        ),
        "padding on either side, of both": row(
            padding.from_mask, padding_mask_by_hand, real, queries=other
        ),
    }
