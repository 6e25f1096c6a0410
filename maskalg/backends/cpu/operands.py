"""Query, key and value of a group as the CPU backend multiplies them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..call import Call
from .plan import Group, Row


@dataclass(frozen=True)
class Operands:
    """Query, key and value of a group, in the dtype of accumulation.

    Query heads that share a key-value head lie side by side: a tile of queries is multiplied with
    their keys at once, and no key is repeated.

    Attributes:
        query: `[batch, heads, q_len, head_dim]`, in the dtype of the call.
        key: `[batch * kv_heads, kv_len, head_dim]`.
        value: `[batch * kv_heads, kv_len, value_dim]`.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    def tile(self, tensor: torch.Tensor, row: Row) -> torch.Tensor:
        """Rows of `[batch, heads, q_len, dim]` as `[batch * kv_heads, group * rows, dim]`."""
        part = tensor[:, :, slice(*row.rows)].to(self.key.dtype)
        return part.reshape(self.key.shape[0], -1, tensor.shape[-1])

    def spread(self, scores: torch.Tensor, row: Row) -> torch.Tensor:
        """A matrix of a tile as `[batch, heads, rows, columns]`, a view."""
        batch, heads = self.query.shape[:2]
        return scores.view(batch, heads, row.rows[1] - row.rows[0], scores.shape[-1])


def accumulation(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in for inputs of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def operands(call: Call, group: Group) -> Operands:
    """The inputs of a group; copies where a dtype, a layout or a choice of heads needs them."""
    dtype = accumulation(call.query.dtype)
    query, key, value = (t[slice(*group.batch)] for t in (call.query, call.key, call.value))
    if group.heads is not None:
        heads = torch.tensor(group.heads)
        query = query.index_select(1, heads)
        key, value = (t.index_select(1, heads // call.group) for t in (key, value))
    return Operands(query, key.to(dtype).flatten(0, 1), value.to(dtype).flatten(0, 1))
