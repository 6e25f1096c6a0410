"""How many keys each query keeps, by digits: the sizes of its boxes, not their keys."""

from __future__ import annotations

from typing import Final

import torch

from ...engine.extents import Extents
from ...engine.normal_form import Bound
from ...proof.digits.forms import DigitForms
from ..tiling import Tiling
from .boxes import Boxes, PartInCall, TileRows
from .digits import Digit, Numeral, holds, joined, tile_of
from .runs import rows_at_once
from .tiles import key_ranges, merged

_QUERIES_AT_ONCE: Final = 1 << 16


def digit_counts(forms: DigitForms, form: Bound, extents: Extents) -> torch.Tensor:
    """The number of keys each query keeps, int64 `[batch, heads, q_len]`."""
    tiling = Tiling(form, extents, (1, 1))
    if not extents.kv_len:
        return torch.zeros(tiling.shape[:3], dtype=torch.int64, device=tiling.device)
    parts = [PartInCall(part, form.values, extents.kv_len) for part in forms.parts]
    counts = [torch.zeros(0, dtype=torch.int64, device=tiling.device)]
    counts += [_of_rows(parts, rows) for _, rows in rows_at_once(tiling, _QUERIES_AT_ONCE)]
    return torch.cat(counts).view(tiling.shape[:3])


def _of_rows(parts: list[PartInCall], rows: TileRows) -> torch.Tensor:
    found = [part.boxes(part.forms.touched, rows) for part in parts]
    count = torch.zeros_like(rows.q0)
    apart = torch.ones_like(rows.q0, dtype=torch.bool)
    for part, boxes in zip(parts, found, strict=True):
        count.index_add_(0, boxes.row, _sizes(part.numeral, boxes))
        if len(part.forms.touched) > 1:  # those of one clause are disjoint
            apart[_overlapping(boxes)] = False
    if len(parts) > 1:
        met = torch.stack([torch.bincount(b.row, minlength=len(count)) > 0 for b in found])
        apart &= met.sum(dim=0) < 2
    again = (~apart).nonzero()[:, 0]
    if len(again):
        some = TileRows(rows.q0[again], rows.q1[again], rows.batch[again], rows.head[again])
        count[again] = _by_ranges(parts, some)
    return count


def _by_ranges(parts: list[PartInCall], rows: TileRows) -> torch.Tensor:
    """Counts where boxes of a row overlap: by their keys, as intervals."""
    met = merged(
        [
            key_ranges(part.numeral, part.boxes(part.forms.touched, rows), part.key_offset(rows), 1)
            for part in parts
        ]
    )
    count = torch.zeros_like(rows.q0)
    return count.index_add_(0, met.row, met.last - met.first + 1)


def _overlapping(boxes: Boxes) -> torch.Tensor:
    """Rows in which two boxes have a key in common, or may."""
    found = [boxes.row[:0]]
    step = 1
    while step < len(boxes.row):
        same = boxes.row[step:] == boxes.row[:-step]
        if not bool(same.any()):
            break
        low = torch.maximum(boxes.low[step:], boxes.low[:-step])
        high = torch.minimum(boxes.high[step:], boxes.high[:-step])
        found.append(boxes.row[step:][same & (low <= high).all(dim=1)])
        step += 1
    return torch.cat(found)


def _sizes(tree: Numeral, boxes: Boxes) -> torch.Tensor:
    """How many numbers between `first` and `last` lie in each box."""
    ends = (joined(tree, boxes.low), joined(tree, boxes.high))
    if bool(((boxes.first <= ends[0]) & (ends[1] <= boxes.last)).all()):
        return _size(tree, boxes)
    first, end = (_below(tree, at, boxes) for at in (boxes.first, boxes.last + 1))
    return (end - first).clamp(min=0)


def _size(tree: Numeral, boxes: Boxes) -> torch.Tensor:
    """How many numbers lie in each box."""
    if isinstance(tree, Digit):
        return (boxes.high[:, tree.index] - boxes.low[:, tree.index] + 1).clamp(min=0)
    return _size(tree.major, boxes) * _below(tree.minor, torch.tensor(tree.radix), boxes)


def _below(tree: Numeral, at: torch.Tensor, boxes: Boxes) -> torch.Tensor:
    """How many numbers < `at` lie in each box."""
    if isinstance(tree, Digit):
        low, high = boxes.low[:, tree.index], boxes.high[:, tree.index]
        return (torch.minimum(at, high + 1) - low).clamp(min=0)
    top = tile_of(at, tree.radix)
    whole = _below(tree.minor, torch.tensor(tree.radix), boxes)
    here = holds(tree.major, top, boxes.low, boxes.high)
    rest = _below(tree.minor, at - top * tree.radix, boxes)
    return _below(tree.major, top, boxes) * whole + torch.where(here, rest, 0)
