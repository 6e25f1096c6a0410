"""Expressions from the mask tensors that a model has written out."""

from __future__ import annotations

import torch

from .. import errors
from ..values.algebra import Mask, Score
from ..values.biases import dense_bias
from ..values.masks import dense


def from_tensor(tensor: torch.Tensor) -> Mask | Score:
    """The expression of a mask tensor: Boolean, True where kept, or numbers added to the scores.

    In added numbers, the lowest number of the dtype or -inf stands for a dropped pair. Such pairs
    become a mask, so that a query without a key has output 0.

    Args:
        tensor: `[q, k]`, `[heads, q, k]` or `[batch, heads, q, k]`, sizes of 1 broadcast.

    Raises:
        TypeError: integers, which may mean either.
    """
    if tensor.dtype == torch.bool:
        return dense(tensor)
    if not tensor.is_floating_point():
        raise errors.MaskTypeError(
            f"attention_mask: a mask of shape {list(tensor.shape)} must be Boolean, True where a "
            f"key is kept, or numbers that are added to scores, got {tensor.dtype}. Write .bool() "
            "if 1 stands for kept."
        )
    lowest = torch.finfo(tensor.dtype).min
    return dense(tensor.detach() > lowest / 2) + dense_bias(tensor)
