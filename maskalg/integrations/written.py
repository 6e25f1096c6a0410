"""Expressions from the mask tensors that a model has written out."""

from __future__ import annotations

import torch

from ..values.algebra import Mask, Score
from ..values.biases import dense_bias
from ..values.masks import dense


def from_tensor(tensor: torch.Tensor) -> Mask | Score:
    """The expression of a mask tensor: Boolean, True where kept, or numbers added to the scores.

    In added numbers, the lowest number of the dtype or -inf stands for a dropped pair. Such pairs
    become a mask, so that a query without a key has output 0.

    Args:
        tensor: `[q, k]`, `[heads, q, k]` or `[batch, heads, q, k]`, sizes of 1 broadcast.
    """
    if tensor.dtype == torch.bool:
        return dense(tensor)
    lowest = torch.finfo(tensor.dtype).min
    return dense(tensor.detach() > lowest / 2) + dense_bias(tensor)
