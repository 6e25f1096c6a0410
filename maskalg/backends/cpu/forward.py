"""The forward pass on a CPU: one tile of queries after another, with an online softmax.

Scores are kept in units of ln 2, so that weights are powers of two: `exp` of float32 tensors is
four times slower than `exp2` where scores are -inf, and ten times where they underflow. A row whose
scores are too large for that, as under a bias of the lowest number, is computed again without.
"""

from __future__ import annotations

import torch

from ..call import Call
from ..results import empty_result
from .elements import Elements, memory_of
from .operands import Operands, accumulation, operands
from .plan import TILE_ELEMENTS, Group, Piece, Row, plan
from .strips import served_by_torch, strip_of_torch, strips


def forward(call: Call, lse_wanted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the dtype of the query, and lse in that of accumulation.

    Without `lse_wanted` the lse may be left unwritten, so that torch's own attention serves the
    tiles whose keys are one piece.
    """
    shape, dtype = call.query.shape[:3], accumulation(call.query.dtype)
    out = empty_result(call.query, call.value.shape[-1])
    lse = call.query.new_full(shape, float("-inf"), dtype=dtype)
    memory = memory_of(call.form, call.extents, dtype)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for group in plan(call.form, call.extents):
            inputs = operands(call, group)
            elements = Elements(call, group, dtype, memory)
            heads = slice(None) if group.heads is None else list(group.heads)
            members = (slice(*group.batch), heads)
            # Views where all heads are computed together, else copies.
            part, part_lse = out[members], lse[members]
            _group(call, group, inputs, elements, (part, part_lse if lse_wanted else None))
            if group.heads is not None:
                out[members], lse[members] = part, part_lse
    return out, lse


def _group(
    call: Call,
    group: Group,
    inputs: Operands,
    elements: Elements,
    results: tuple[torch.Tensor, torch.Tensor | None],
) -> None:
    """Write output and, where wanted, lse of the batch entries and heads of a group."""
    out, lse = results
    of_torch = lse is None and served_by_torch(call, elements)
    scratch = torch.empty(0, dtype=elements.dtype)
    for strip in strips(group.rows, of_torch and elements.formulas.together.by_distance):
        whole = out[:, :, strip[0].rows[0] : strip[-1].rows[1]]
        if of_torch and strip_of_torch(call, inputs, elements, strip, whole):
            continue
        for row in strip:
            of_row = _row if call.weight.formula is None else _row_of_weights
            result, row_lse = of_row(call, inputs, elements, row, scratch)
            out[:, :, slice(*row.rows)] = inputs.spread(result, row)
            if lse is not None:
                lse[:, :, slice(*row.rows)] = inputs.spread(row_lse, row).squeeze(-1)


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
        shrink, m = elements.power(m.sub_(highest)), highest
        weights = elements.weights(scores.sub_(m))
        total.mul_(shrink).add_(weights.sum(dim=-1, keepdim=True))
        out.mul_(shrink).baddbmm_(weights, inputs.value[:, columns])
    # Where all scores overflowed, or one did: or where nothing is kept, which looks the same.
    overflows = elements.has_bias and elements.unit != 1.0
    if overflows and bool(((m == limits.min) | (m == float("inf"))).any()):
        return _row(call, inputs, elements.in_natural_units(), row, scratch)
    lse = m.div_(elements.unit).add_(total.log())
    return out.div_(total.clamp(min=limits.tiny)), lse


def _row_of_weights(
    call: Call, inputs: Operands, elements: Elements, row: Row, scratch: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_row` for weights that have a formula; the sum of weights stands in for the lse."""
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
    """Weights that have a formula, of a tile of queries and a piece of keys."""
    scores = product(query, inputs.key[:, slice(*piece.columns)].transpose(1, 2), scratch)
    spread = inputs.spread(scores.mul_(call.scale), row)
    weights = elements.biased(spread, row.rows, piece.columns)
    elements.keep(weights, row.rows, piece.columns[0], piece.masked)
    return weights.view(scores.shape)


def score_factor(call: Call, elements: Elements) -> float:
    """The factor of a query that makes its products with keys scores.

    Scores in units of `elements`, unless a bias wants to see them first.
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

    Returns a tensor in units of `elements` that may be written to, the `scratch` of the caller
    where that serves.
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
