"""The forward pass on a CPU: one tile of queries after another, with an online softmax.

Scores are kept in units of ln 2, so that weights are powers of two: `exp` of float32 tensors is
four times slower than `exp2` where scores are -inf, and ten times where they underflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from .call import Call
from .cpu_elements import Elements, memory_of
from .cpu_plan import TILE_ELEMENTS, Group, Row, plan

LOG2E: Final = 1 / math.log(2)


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


def forward(call: Call, lse_wanted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the dtype of the query, and lse in that of accumulation.

    Without `lse_wanted` the lse may be left unwritten, so that torch's own attention serves the
    tiles whose keys are one piece.
    """
    batch, heads, q_len, _ = call.query.shape
    dtype = accumulation(call.query.dtype)
    out = call.query.new_empty(batch, heads, q_len, call.value.shape[-1])
    lse = call.query.new_full((batch, heads, q_len), float("-inf"), dtype=dtype)
    memory = memory_of(call.form, call.extents, dtype)
    scratch = torch.empty(0, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for group in plan(call.form, call.extents):
            inputs = operands(call, group)
            elements = Elements(call, group, dtype, memory)
            of_group = (
                slice(*group.batch),
                slice(None) if group.heads is None else list(group.heads),
            )
            plain = not lse_wanted and elements.formulas.additive
            for row in group.rows:
                place = (*of_group, slice(*row.rows))
                if not row.pieces:
                    out[place] = 0
                    continue
                whole = _row_of_torch(call, inputs, elements, row) if plain else None
                if whole is None:
                    result, row_lse = _row(call, inputs, elements, row, scratch)
                    whole = inputs.spread(result, row)
                    lse[place] = inputs.spread(row_lse, row).squeeze(-1)
                out[place] = whole
    return out, lse


def _row_of_torch(
    call: Call, inputs: Operands, elements: Elements, row: Row
) -> torch.Tensor | None:
    """Output of a tile of queries, `[batch, heads, rows, dim]`; None where torch cannot serve."""
    if len(row.pieces) != 1:
        return None
    (piece,) = row.pieces
    mask = None
    if piece.masked or elements.formulas.fields:
        mask = elements.additive_mask(row.rows, piece)
        if mask is None:
            return None
    batch = inputs.query.shape[0]
    key, value = (
        t[:, slice(*piece.columns)].unflatten(0, (batch, -1)) for t in (inputs.key, inputs.value)
    )
    query = inputs.query[:, :, slice(*row.rows)].to(key.dtype)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        scale=call.scale,
        enable_gqa=key.shape[1] != query.shape[1],
    )


def _row(
    call: Call, inputs: Operands, elements: Elements, row: Row, scratch: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse of a tile of queries, `[batch * kv_heads, group * rows, dim or 1]`."""
    query = inputs.tile(inputs.query, row) * score_factor(call, elements)
    # A row of -inf alone is shifted by the lowest number instead of -inf, which would give NaN.
    limits = torch.finfo(query.dtype)
    m = query.new_full((*query.shape[:2], 1), limits.min)
    total, out = torch.zeros_like(m), query.new_zeros(*query.shape[:2], inputs.value.shape[-1])
    for piece in row.pieces:
        columns = slice(*piece.columns)
        scores = biased_scores(inputs, elements, query, row, piece.columns, scratch)
        elements.mask(inputs.spread(scores, row), row.rows, piece.columns[0], piece.masked)
        highest = torch.maximum(scores.amax(dim=-1, keepdim=True), m)
        shrink, m = m.sub_(highest).exp2_(), highest
        weights = scores.sub_(m).exp2_()
        total.mul_(shrink).add_(weights.sum(dim=-1, keepdim=True))
        out.mul_(shrink).baddbmm_(weights, inputs.value[:, columns])
    return out.div_(total.clamp(min=limits.tiny)), m.add_(total.log2()).div_(LOG2E)


def score_factor(call: Call, elements: Elements) -> float:
    """What a query is multiplied with, so that its products with keys are scores.

    Scores in units of ln 2, unless a bias wants to see them first.
    """
    return call.scale * (LOG2E if elements.formulas.additive else 1.0)


def biased_scores(
    inputs: Operands,
    elements: Elements,
    query: torch.Tensor,
    row: Row,
    columns: tuple[int, int],
    scratch: torch.Tensor,
) -> torch.Tensor:
    """Scores of scaled queries and a piece of keys after the bias, before the mask.

    Returns a tensor in units of ln 2 that may be written to, the `scratch` of the caller where
    that serves.
    """
    scores = product(query, inputs.key[:, slice(*columns)].transpose(1, 2), scratch)
    if not elements.formulas.fields and elements.formulas.additive:
        return scores
    spread = inputs.spread(scores, row)
    if elements.formulas.additive:
        return spread.add_(elements.field(0, row.rows, columns)).view(scores.shape)
    return elements.biased(spread, row.rows, columns).mul_(LOG2E).view(scores.shape)


def product(left: torch.Tensor, right: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """`left @ right` for batches of matrices, written to `scratch`, which grows where needed."""
    shape = (left.shape[0], left.shape[1], right.shape[2])
    size = shape[0] * shape[1] * shape[2]
    if scratch.numel() < size:
        scratch.resize_(max(size, TILE_ELEMENTS))
    return torch.bmm(left, right, out=scratch[:size].view(shape))
