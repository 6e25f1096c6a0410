"""Masks on the key's position alone: prefixes and padding."""

from __future__ import annotations

import torch

from .. import errors, nodes
from ..algebra import Mask
from ..nodes import SCORE, K, Q
from ..parameters import Table
from ..printing import called
from .arguments import INTEGER_DTYPES, integer_or_per_batch, shown


def prefix(length: int | torch.Tensor) -> Mask:
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


def padding(lengths: torch.Tensor, *, queries: bool = False) -> Mask:
    """k < lengths[batch]: right-padded input.

    Args:
        lengths: integer tensor `[batch]`, the number of real tokens of each sequence.
        queries: drop padded queries too (their output is then 0 and their lse -inf).
    """
    if not isinstance(lengths, torch.Tensor) or lengths.dtype not in INTEGER_DTYPES:
        found = lengths.dtype if isinstance(lengths, torch.Tensor) else type(lengths).__name__
        raise errors.tensor_dtype("padding", "lengths", found, "an int32 or int64 tensor")
    if lengths.ndim != 1:
        raise errors.tensor_shape("padding", "lengths", list(lengths.shape), "[batch]")
    table = Table("lengths", lengths, low=0)
    n = nodes.read(table, nodes.BATCH)
    node = nodes.gt(n, K)
    if queries:
        node = nodes.conjunction(node, nodes.gt(n, Q))
    return Mask(node, SCORE, called("padding", table, *(["queries=True"] if queries else [])))
