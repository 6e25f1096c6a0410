"""Masks on the key's position alone: prefixes and padding."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Mask
from ..entries import INTEGER_DTYPES, Entries, as_tensor, kind_of
from ..nodes import SCORE, K, Node, Q
from ..parameters import Table
from ..printing import called
from .arguments import at, integer_or_per_batch, shown


def prefix(length: int | Entries) -> Mask:
    """k < length: every query keeps the first `length` keys.

    `causal | prefix(n)` is a prefix language model; `causal & (sliding(w) | prefix(4))` keeps
    four attention sinks beside a window.

    Args:
        length: an integer >= 0, or an integer tensor `[batch]` or `[batch, heads]` on the device of
            the inputs, whose entries below 0 count as 0.

    Source: prefix language models of T5 (Raffel et al., 2019); StreamingLLM (Xiao et al., 2023).

    Examples:
        >>> (causal | prefix(2)).to_dense(3)[0, 0].int().tolist()
        [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    call = f"prefix({shown(length)})"
    n, printed = integer_or_per_batch(call, "prefix", length, low=0)
    return Mask(nodes.gt(n, K), SCORE, called("prefix", printed))


class _Padding:
    """Keys that are no padding: `padding(lengths)`, or `padding.from_mask(attention_mask)`."""

    __slots__ = ()

    def __call__(self, lengths: Entries, *, queries: bool = False) -> Mask:
        """k < lengths[batch]: right-padded input.

        Args:
            lengths: integer tensor `[batch]`, the number of real tokens of each sequence.
            queries: drop padded queries too (their output is then 0 and their lse -inf).
        """
        given = as_tensor(lengths)
        if not isinstance(given, torch.Tensor) or given.dtype not in INTEGER_DTYPES:
            raise errors.padding_dtype(kind_of(lengths))
        if given.ndim != 1:
            raise errors.padding_shape(list(given.shape))
        table = Table("lengths", given, low=0)
        n = nodes.read(table, nodes.BATCH)
        return _padded("padding", table, nodes.gt(n, K), nodes.gt(n, Q) if queries else None)

    def from_mask(self, attention_mask: Entries, *, queries: bool = False) -> Mask:
        """attention_mask[batch, k]: real tokens are kept, padding on either side is dropped.

        Args:
            attention_mask: Boolean or integer tensor `[batch, kv_len]` as tokenizers make it: True
                or not 0 for a real token.
            queries: drop padded queries too, where queries and keys are the same positions.

        Raises:
            TypeError: no Boolean or integer tensor.
            ValueError: a tensor of another rank; at the call, fewer entries than keys.

        Source: `attention_mask` of Hugging Face transformers.

        Examples:
            >>> left = torch.tensor([[0, 1, 1]])
            >>> (causal & padding.from_mask(left)).to_dense(3)[0, 0].int().tolist()
            [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
        """
        call, name, mask = "padding.from_mask", "attention_mask", as_tensor(attention_mask)
        if not isinstance(mask, torch.Tensor) or mask.dtype.is_floating_point or mask.is_complex():
            found = kind_of(attention_mask)
            raise errors.tensor_dtype(call, name, found, "a bool or integer tensor")
        if mask.ndim != 2:
            raise errors.tensor_shape(call, name, list(mask.shape), "[batch, kv_len]")
        table = Table(name, mask.to(torch.bool))
        return _padded(call, table, at(table, K), at(table, Q) if queries else None)


def _padded(call: str, table: Table, key: Node, query: Node | None) -> Mask:
    """What `key` keeps, and `query` where padded queries are dropped too."""
    if query is None:
        return Mask(key, SCORE, called(call, table))
    return Mask(nodes.conjunction(key, query), SCORE, called(call, table, "queries=True"))


padding = _Padding()
