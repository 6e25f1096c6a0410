"""New tensors for outputs and gradients: they lie in memory as the inputs they belong to.

A model's projections are `[batch, length, heads, dim]` in memory, and what it does with the output
reads that. In the order of the inputs nothing is copied on the way.
"""

from __future__ import annotations

import torch


def empty_result(
    like: torch.Tensor, dim: int | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A new dense tensor `[batch, heads, length, dim]` in the order of `like`.

    Args:
        like: the query of an output, or the input of a gradient.
        dim: the last size, that of `like` if None.
        dtype: that of `like` if None.
    """
    dim = like.shape[-1] if dim is None else dim
    return like.new_empty_strided((*like.shape[:3], dim), _strides(like, dim), dtype=dtype)


def empty_gradients(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dtype: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """New tensors for dQ, dK and dV; dK and dV both lie in the order of the key."""
    pairs = ((query, query), (key, key), (key, value))
    return [empty_result(like, of.shape[-1], dtype) for like, of in pairs]


def in_order_of(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where it does not lie as `empty_result` does."""
    dim = tensor.shape[-1]
    if tensor.stride() == _strides(like, dim):
        return tensor
    return empty_result(like, dim, tensor.dtype).copy_(tensor)


def steps(like: torch.Tensor) -> tuple[int, int]:
    """Rows from a head to the next, and from a token to the next, in the order of `like`."""
    _, heads, length, _ = like.shape
    return (1, heads) if _of_tokens(like) else (length, 1)


def _of_tokens(tensor: torch.Tensor) -> bool:
    """Whether a token's heads lie together, `[batch, length, heads, dim]` in memory, and are not
    one head expanded."""
    return 0 < tensor.stride(1) < tensor.stride(2)


def _strides(like: torch.Tensor, dim: int) -> tuple[int, int, int, int]:
    _, heads, length, _ = like.shape
    if _of_tokens(like):
        return heads * length * dim, dim, heads * dim, 1
    return heads * length * dim, length * dim, dim, 1
