"""Masks on the key's position alone: prefixes and padding."""

from __future__ import annotations

import torch

from ... import errors
from ...formula import nodes
from ...formula.entries import INTEGER_DTYPES, Entries, as_tensor, kind_of
from ...formula.nodes import SCORE, K, Node, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Mask
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

    def __call__(self, lengths: Entries, *, queries: bool | Entries = False) -> Mask:
        """k < lengths[batch]: right-padded input.

        Args:
            lengths: integer tensor `[batch]`, the number of real tokens of each sequence.
            queries: drop padded queries too (their output is then 0 and their lse -inf): True where
                they are as many as the keys, or an integer tensor `[batch]` of their numbers.

        Raises:
            TypeError: no integer tensor.
            ValueError: a tensor of another rank; at the call, of another batch.

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
            queries: drop padded queries too: True where queries and keys are the same positions, or
                such a tensor `[batch, q_len]` of theirs.

        Raises:
            TypeError: no Boolean or integer tensor.
            ValueError: a tensor of another rank; at the call, fewer entries than keys.

        Source: `attention_mask` of Hugging Face transformers.

        Examples:
            >>> left = torch.tensor([[0, 1, 1]])
            >>> (causal & padding.from_mask(left)).to_dense(3)[0, 0].int().tolist()
            [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
        """
        call = "padding.from_mask"
        keys = _real_tokens(call, "attention_mask", attention_mask, "[batch, kv_len]")
        if isinstance(queries, bool):
            return _padded(call, keys, at(keys, K), at(keys, Q) if queries else None)
        of_queries = _real_tokens(call, "queries", queries, "[batch, q_len]")
        return _padded(call, keys, at(keys, K), at(of_queries, Q), of_queries)


def _lengths(name: str, lengths: object) -> Table:
    given = as_tensor(lengths)
    if not isinstance(given, torch.Tensor) or given.dtype not in INTEGER_DTYPES:
        raise errors.padding_dtype(name, kind_of(lengths))
    if given.ndim != 1:
        raise errors.padding_shape(name, list(given.shape))
    return Table(name, given, low=0)


def _first(lengths: Table, index: Node) -> Node:
    """The first `lengths[batch]` positions."""
    return nodes.gt(nodes.read(lengths, nodes.BATCH), index)


def _real_tokens(call: str, name: str, given: object, wanted: str) -> Table:
    mask = as_tensor(given)
    if not isinstance(mask, torch.Tensor) or mask.dtype.is_floating_point or mask.is_complex():
        raise errors.tensor_dtype(call, name, kind_of(given), "a bool or integer tensor")
    if mask.ndim != 2:
        raise errors.tensor_shape(call, name, list(mask.shape), wanted)
    return Table(name, mask.to(torch.bool))


def _padded(
    call: str, keys: Table, kept: Node, query: Node | None, of_queries: Table | None = None
) -> Mask:
    """What `kept` keeps of the keys, and `query` of queries where padded ones are dropped too."""
    if query is None:
        return Mask(kept, SCORE, called(call, keys))
    label = called(call, keys, of_queries or "queries=True")
    return Mask(nodes.conjunction(kept, query), SCORE, label)


padding = _Padding()
