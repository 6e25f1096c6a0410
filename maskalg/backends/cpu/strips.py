"""Tiles served by torch's own attention on the CPU, neighbours at equal distances in one call.

A *strip* is a sequence of neighbouring tiles of queries that look alike: as many rows, one piece
of keys each at the same distance, and a mask and bias that depend on the distance alone. One call
serves it, over overlapping views of the keys.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F

from ..call import Call
from .elements import Elements
from .operands import Operands
from .plan import Range, Row

# Tiles in one call of torch: many, to share its costs; not all, so that its results stay small.
_TOGETHER: Final = 64

Strip = tuple[Row, ...]


def served_by_torch(call: Call, elements: Elements) -> bool:
    """Whether torch's attention without a matrix of scores takes these dimensions and this bias."""
    return (
        call.weight.formula is None
        and elements.formulas.additive
        and call.query.shape[-1] == call.value.shape[-1]
    )


def strips(rows: tuple[Row, ...], by_distance: bool) -> list[Strip]:
    """The rows in order, cut into strips; a row that is like no neighbour is a strip of one."""
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

    Returns whether torch could serve: not where keys lie in several pieces or where a query keeps
    nothing.
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
    """A strip of several tiles, which torch takes for heads, and heads for the batch.

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
