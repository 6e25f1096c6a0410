"""The forward pass on a CPU: one tile of queries after another, with an online softmax.

Scores are kept in units of ln 2, so that weights are powers of two: `exp` of float32 tensors is
four times slower than `exp2` for scores of -inf, and ten times if they underflow. A row whose
scores are too large for these units, as under a bias of the lowest number, is computed again in
natural units.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..call import Call
from ..results import empty_result
from .elements import Elements
from .plan import TILE_ELEMENTS, Group, Piece, Row, plan


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


def forward(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the dtype of the query, and lse in that of accumulation."""
    shape, dtype = call.query.shape[:3], accumulation(call.query.dtype)
    out = empty_result(call.query, call.value.shape[-1])
    lse = call.query.new_full(shape, float("-inf"), dtype=dtype)
    of_row = _row if call.weight.formula is None else _row_of_weights
    scratch = torch.empty(0, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for group in plan(call.form, call.extents):
            inputs, elements = operands(call, group), Elements(call, group, dtype)
            batch, heads = group.members
            for row in group.rows:
                rows = slice(*row.rows)
                result, row_lse = of_row(call, inputs, elements, row, scratch)
                out[batch, heads, rows] = inputs.spread(result, row).to(out.dtype)
                lse[batch, heads, rows] = inputs.spread(row_lse, row).squeeze(-1)
    return out, lse


def online_softmax(
    call: Call, inputs: Operands, elements: Elements, row: Row, scratch: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of a tile of queries `[batch * kv_heads, group * rows, dim or 1]`: the largest score, and the
    sums of weights relative to it, alone and times the values."""
    query = inputs.tile(inputs.query, row) * score_factor(call, elements)
    # A row of -inf alone is shifted by the lowest number instead of -inf, which would give NaN.
    m = query.new_full((*query.shape[:2], 1), torch.finfo(query.dtype).min)
    total, out = torch.zeros_like(m), query.new_zeros(*query.shape[:2], inputs.value.shape[-1])
    for piece in row.pieces:
        columns = slice(*piece.columns)
        scores = biased_scores(inputs, elements, query, row, piece.columns, scratch)
        elements.mask(inputs.spread(scores, row), row.rows, piece.columns[0], piece.masked)
        highest = torch.maximum(scores.amax(dim=-1, keepdim=True), m)
        shrink, m = elements.power(m.sub_(highest)), highest
        weights = elements.weights(scores.sub_(m))
        total.mul_(shrink).add_(weights.sum(dim=-1, keepdim=True))
        out.mul_(shrink).baddbmm_(weights, inputs.value[:, columns])
    return m, total, out


def _row(
    call: Call, inputs: Operands, elements: Elements, row: Row, scratch: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and lse of a tile of queries, `[batch * kv_heads, group * rows, dim or 1]`."""
    m, total, out = online_softmax(call, inputs, elements, row, scratch)
    limits = torch.finfo(m.dtype)
    # All scores overflowed, or one did, or no key is kept, which looks the same.
    overflows = elements.has_bias and elements.unit != 1.0
    if overflows and bool(((m == limits.min) | (m == float("inf"))).any()):
        return _row(call, inputs, elements.in_natural_units(), row, scratch)
    lse = m.div_(elements.unit).add_(total.log())
    return out.div_(total.clamp(min=limits.tiny)), lse


def _row_of_weights(
    call: Call, inputs: Operands, elements: Elements, row: Row, scratch: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `_row`, for weights that have a formula; the sum of weights takes the place of lse."""
    query = inputs.tile(inputs.query, row)
    total = query.new_zeros((*query.shape[:2], 1))
    out = query.new_zeros(*query.shape[:2], inputs.value.shape[-1])
    for piece in row.pieces:
        weights = piece_weights(call, inputs, elements, query, row, piece, scratch)
        total.add_(weights.sum(dim=-1, keepdim=True))
        out.baddbmm_(weights, inputs.value[:, slice(*piece.columns)])
    if call.weight.normalised:
        out.div_(torch.where(total == 0, 1.0, total))
    return out, total


def piece_weights(
    call: Call,
    inputs: Operands,
    elements: Elements,
    query: torch.Tensor,
    row: Row,
    piece: Piece,
    scratch: torch.Tensor,
) -> torch.Tensor:
    """The weights of a tile of queries and a piece of keys, by their formula."""
    scores = product(query, inputs.key[:, slice(*piece.columns)].transpose(1, 2), scratch)
    spread = inputs.spread(scores.mul_(call.scale), row)
    weights = elements.biased(spread, row.rows, piece.columns)
    elements.keep(weights, row.rows, piece.columns[0], piece.masked)
    return weights.view(scores.shape)


def score_factor(call: Call, elements: Elements) -> float:
    """The factor of queries that turns products with keys into scores.

    Scores have the units of `elements`, or natural units if a bias reads them first.
    """
    return call.scale * (elements.unit if elements.formulas.additive else 1.0)


def biased_scores(
    inputs: Operands,
    elements: Elements,
    query: torch.Tensor,
    row: Row,
    columns: tuple[int, int],
    scratch: torch.Tensor,
) -> torch.Tensor:
    """Scores of scaled queries and a piece of keys after the bias, before the mask.

    Returns a writable tensor in units of `elements`, if possible the caller's `scratch`.
    """
    scores = product(query, inputs.key[:, slice(*columns)].transpose(1, 2), scratch)
    if not elements.formulas.fields and elements.formulas.additive:
        return scores
    spread = inputs.spread(scores, row)
    if elements.formulas.additive:
        return spread.add_(elements.field(0, row.rows, columns)).view(scores.shape)
    return elements.biased(spread, row.rows, columns).mul_(elements.unit).view(scores.shape)


def product(left: torch.Tensor, right: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """`left @ right` for batches of matrices, written to `scratch`, which grows where needed."""
    shape = (left.shape[0], left.shape[1], right.shape[2])
    size = shape[0] * shape[1] * shape[2]
    if scratch.numel() < size:
        scratch.resize_(max(size, TILE_ELEMENTS))
    return torch.bmm(left, right, out=scratch[:size].view(shape))
