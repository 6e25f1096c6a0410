"""New tensors for outputs and gradients, in the memory layout of their inputs.

A model's projections are `[batch, length, heads, dim]` in memory, and its next layer reads the
output in that layout. With the layout of the inputs, nothing is copied.
"""

from __future__ import annotations

import torch


def empty_result(
    like: torch.Tensor, dim: int | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A new dense tensor `[batch, heads, length, dim]` in the order of `like`.

    Args:
        like: the query of an output, or the input of a gradient.
        dim: the last size; None means that of `like`.
        dtype: None means that of `like`.
    """
    batch, heads, length, own = like.shape
    dim = own if dim is None else dim
    return like.new_empty_strided((batch, heads, length, dim), _strides(like, dim), dtype=dtype)


def empty_gradients(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dtype: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """New tensors for dQ, dK and dV; dK and dV both have the layout of the key."""
    dq, dk = empty_result(query, dtype=dtype), empty_result(key, dtype=dtype)
    return [dq, dk, empty_result(key, value.shape[-1], dtype)]


def in_order_of(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if its layout is not that of `empty_result`."""
    dim = tensor.shape[-1]
    wanted, found = _strides(like, dim), tensor.stride()
    if found == wanted or (len(tensor) == 1 and found[1:] == wanted[1:]):
        return tensor
    return empty_result(like, dim, tensor.dtype).copy_(tensor)


def row_steps(like: torch.Tensor) -> tuple[int, int]:
    """Steps in rows from head to head and token to token, in the order of `like`."""
    _, head, token, _ = _strides(like, 1)
    return head, token


def _strides(like: torch.Tensor, dim: int) -> tuple[int, int, int, int]:
    """The strides of `empty_result`."""
    _, heads, length, _ = like.shape
    _, head, token, _ = like.stride()
    if 0 < head < token:  # of a token together; 0 is one head expanded
        return heads * length * dim, dim, heads * dim, 1
    return heads * length * dim, length * dim, dim, 1


def with_sink(
    out: torch.Tensor, lse: torch.Tensor, sink: float | torch.Tensor | None
) -> torch.Tensor:
    """The output of a softmax with a sink, from the output without the sink.

    Args:
        out: `[batch, heads, rows, value_dim]`.
        lse: `[batch, heads, rows]`, without the sink.
        sink: a number, or `[heads]`.
    """
    if sink is None:
        return out
    logits = sink.to(lse.dtype).unsqueeze(-1) if isinstance(sink, torch.Tensor) else sink
    # exp(lse) / (exp(lse) + exp(sink)), with gradients 0 where nothing is kept.
    some = lse != float("-inf")
    over = torch.where(some, lse, 0.0) - logits
    if over.device.type == "cpu":
        # A sigmoid's last bit depends on its place in the tensor, and so would a request's on the
        # others of its batch. In float64 that is a bit that float32 does not hold.
        over = over.double()
    share = torch.where(some, torch.sigmoid(over), 0.0)
    return out * share.unsqueeze(-1).to(out.dtype)
