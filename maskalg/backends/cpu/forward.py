"""The forward pass on a CPU: one tile of queries after another, with an online softmax.

Scores are kept in units of ln 2, so that weights are powers of two: `exp` of float32 tensors is
four times slower than `exp2` for scores of -inf, and ten times if they underflow. A row whose
scores are too large for these units, as under a bias of the lowest number, is computed again in
natural units.

A *strip* is a sequence of neighbouring tiles of queries that look alike: equally many rows, one
piece of keys each at the same distance, and a mask and bias that depend on the distance alone. One
call of torch's own attention computes it, over overlapping views of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F

from ..call import Call
from ..results import empty_result
from .elements import Elements, memory_of
from .plan import TILE_ELEMENTS, Group, Piece, Range, Row, plan


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


# Tiles in one call of torch: many, to share its overhead; not all, to keep results small.
_TOGETHER: Final = 64

Strip = tuple[Row, ...]


def served_by_torch(call: Call, elements: Elements) -> bool:
    """Whether torch's attention without a matrix supports these dimensions and this bias."""
    return (
        call.weight.formula is None
        and elements.formulas.additive
        and call.query.shape[-1] == call.value.shape[-1]
    )


def strips(rows: tuple[Row, ...], by_distance: bool) -> list[Strip]:
    """The rows in order, cut into strips; a row unlike its neighbours is a strip of one."""
    found: list[list[Row]] = []
    for row in rows:
        if by_distance and found and _follows(found[-1][-1], row):
            found[-1].append(row)
        else:
            found.append([row])
    return [tuple(strip) for strip in found]


def strip_of_torch(
    call: Call, inputs: Operands, elements: Elements, strip: Strip, out: torch.Tensor
) -> bool:
    """Write the output of the queries of a strip to `out`, `[batch, heads, rows, dim]`.

    Returns whether torch could compute it: not if keys lie in several pieces, or a query keeps no
    key.
    """
    rows, pieces = strip[0].rows, strip[0].pieces
    if len(pieces) != 1:
        return False
    mask = None
    if pieces[0].masked or elements.formulas.fields:
        mask = elements.additive_mask(rows, pieces[0])
        if mask is None:
            return False
    if len(strip) > 1:
        for first in range(0, len(strip), _TOGETHER):
            part = strip[first : first + _TOGETHER]
            place = slice(part[0].rows[0] - rows[0], part[-1].rows[1] - rows[0])
            _together(call, inputs, part, mask, out[:, :, place])
        return True
    batch = inputs.query.shape[0]
    key, value = (
        t[:, slice(*pieces[0].columns)].unflatten(0, (batch, -1))
        for t in (inputs.key, inputs.value)
    )
    out.copy_(
        F.scaled_dot_product_attention(
            inputs.query[:, :, slice(*rows)].to(key.dtype),
            key,
            value,
            attn_mask=mask,
            scale=call.scale,
            enable_gqa=key.shape[1] != inputs.query.shape[1],
        )
    )
    return True


def _together(
    call: Call, inputs: Operands, strip: Strip, mask: torch.Tensor | None, out: torch.Tensor
) -> None:
    """A strip of several tiles: torch gets tiles as heads, and heads as the batch.

    In this order neighbouring tiles, whose keys overlap, are computed one after the other.
    """
    rows = slice(strip[0].rows[0], strip[-1].rows[1])
    columns = slice(strip[0].pieces[0].columns[0], strip[-1].pieces[0].columns[1])
    step = strip[0].rows[1] - rows.start
    width = strip[0].pieces[0].columns[1] - columns.start
    key, value = (_windows(t[:, columns], width, step) for t in (inputs.key, inputs.value))
    batch, heads = inputs.query.shape[:2]
    group = batch * heads // key.shape[0]
    query = inputs.query[:, :, rows].to(key.dtype)
    shared = mask is None or mask.shape[:2] == (1, 1)
    each = None if shared or mask is None else mask.expand(batch, heads, *mask.shape[2:])
    for member in range(group):
        # Query heads that share keys one after the other: torch would repeat the windows.
        members = slice(member, None, group)
        result = F.scaled_dot_product_attention(
            _windows(query[:, members].flatten(0, 1), step, step),
            key,
            value,
            attn_mask=mask if each is None else each[:, members].flatten(0, 1).unsqueeze(1),
            scale=call.scale,
        )
        out[:, members] = result.flatten(1, 2).unflatten(0, (batch, -1))


def _windows(tensor: torch.Tensor, width: int, step: int) -> torch.Tensor:
    """`[matrices, length, dim]` as a view `[matrices, windows, width, dim]`."""
    return tensor.unfold(1, width, step).transpose(2, 3)


def _follows(before: Row, row: Row) -> bool:
    """Whether `row` is `before` moved on by its own length."""
    step = before.rows[1] - before.rows[0]
    return row.rows == _moved(before.rows, step) and [
        (piece.columns, piece.masked) for piece in row.pieces
    ] == [
        (_moved(piece.columns, step), tuple([_moved(part, step) for part in piece.masked]))
        for piece in before.pieces
    ]


def _moved(part: Range, step: int) -> Range:
    return part[0] + step, part[1] + step


def forward(call: Call, lse_wanted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in the dtype of the query, and lse in that of accumulation.

    Without `lse_wanted` the lse may stay unwritten, so that torch's own attention can compute tiles
    whose keys are one piece.
    """
    shape, dtype = call.query.shape[:3], accumulation(call.query.dtype)
    out = empty_result(call.query, call.value.shape[-1])
    lse = call.query.new_full(shape, float("-inf"), dtype=dtype)
    memory = memory_of(call.form, call.extents, dtype)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for group in plan(call.form, call.extents):
            inputs = operands(call, group)
            elements = Elements(call, group, dtype, memory)
            # Views where all heads are computed together, else copies.
            part, part_lse = out[group.members], lse[group.members]
            _group(call, group, inputs, elements, (part, part_lse if lse_wanted else None))
            if group.heads is not None:
                out[group.members], lse[group.members] = part, part_lse
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
