"""From boxes of keys to the tiles that they meet, and to the full ones among these.

A box is a set of segments of consecutive keys, one for each choice of its upper digits. Segments
with less than a tile between them meet the same tiles as one long segment, so segments are joined
over such gaps, and only upper digits that leave a whole tile free are enumerated.

A tile is full if no query drops any of its keys. Along each touched segment the next dropped key is
searched, in all boxes of dropped keys at once; the tiles before it are full. A box with a key in
every tile is passed in one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...proof.digits.forms import Leaf, Numeral
from ..positions.sets import spread
from .boxes import Boxes, PartInCall, TileRows
from .digits import FAR, joined, last_in, next_in, tile_of

Tiles = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # row, first tile, end


@dataclass(frozen=True)
class _Dropped:
    """Boxes of dropped keys of a part; row r has `count[r]` of them, from `begin[r]` on.

    In a `dense` box, every tile between two of its keys, up to `last`, holds one of them. The
    widest dense box of each row reaches from `from_key` to `to_key`.
    """

    numeral: Numeral
    offset: torch.Tensor
    boxes: Boxes
    begin: torch.Tensor
    count: torch.Tensor
    dense: torch.Tensor
    last: torch.Tensor
    from_key: torch.Tensor
    to_key: torch.Tensor

    def next(
        self, box: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The first key in low..high of each box (beyond FAR if there is none), and the last key up
        to which every tile holds one."""
        low = torch.maximum(low, self.boxes.first[box])
        high = torch.minimum(high, self.boxes.last[box])
        key = next_in(self.numeral, low, self.boxes.low[box], self.boxes.high[box])
        key = torch.where(key <= high, key, 2 * FAR)
        return key, torch.where(self.dense[box] & (key < FAR), self.last[box], key)


class FullTiles:
    """Searches rows of tiles for full ones."""

    def __init__(
        self,
        parts: list[PartInCall],
        rows: TileRows,
        offsets: list[torch.Tensor],
        kv_len: int,
        block_kv: int,
    ) -> None:
        self._kv_len = kv_len
        self._block = block_kv
        self._dropped = [
            _dropped(part, rows, offset, block_kv)
            for part, offset in zip(parts, offsets, strict=True)
        ]

    def among(self, met: KeyRanges) -> Tiles:
        """The full tiles that touched segments cover, as runs; those of a row in any order."""
        block = self._block
        cut = met.last == self._kv_len - 1
        first = tile_of(met.first + block - 1, block)
        end = torch.where(cut, tile_of(met.last, block) + 1, tile_of(met.last + 1, block))
        row = met.row
        searched = first < end
        for part in self._dropped:
            # No tile is full where a dense box covers the whole segment.
            searched &= (part.from_key[row] > met.first) | (part.to_key[row] < met.last)
        row, first, end = row[searched], first[searched], end[searched]
        found: list[Tiles] = []
        while True:
            some = first < end
            row, first, end = row[some], first[some], end[some]
            if not len(row):
                break
            drop, passed = self._next(row, first * block, (end * block).clamp(max=self._kv_len) - 1)
            until = torch.minimum(tile_of(drop, block), end)
            whole = until > first
            found.append((row[whole], first[whole], until[whole]))
            first = tile_of(passed, block) + 1
        if not found:
            return row, first, end
        rows, firsts, ends = (torch.cat(column) for column in zip(*found, strict=True))
        return rows, firsts, ends

    def _next(
        self, row: torch.Tensor, first: torch.Tensor, last: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next dropped key in `first..last` or FAR; the key after which a tile may be free of
        one."""
        nearest = torch.full_like(first, FAR)
        passed = torch.full_like(first, FAR)
        for part in self._dropped:
            count, begin, move = part.count[row], part.begin[row], part.offset[row]
            low, high = first + move, last + move
            for turn in range(int(count.max())):
                at = (count > turn).nonzero()[:, 0]
                box = begin[at] + turn
                key, reach = part.next(box, low[at], high[at])
                key, reach = key - move[at], reach - move[at]
                near, far = nearest[at], passed[at]
                same_tile = tile_of(key, self._block) == tile_of(near, self._block)
                joint = torch.where(same_tile, torch.maximum(reach, far), far)
                passed[at] = torch.where((key < near) & ~same_tile, reach, joint)
                nearest[at] = torch.minimum(near, key)
        return nearest, passed


def _dropped(part: PartInCall, rows: TileRows, offset: torch.Tensor, block_kv: int) -> _Dropped:
    boxes = part.boxes(part.forms.unfull, rows).widest_first()
    count = torch.bincount(boxes.row, minlength=len(rows.q0))
    slack = torch.full_like(boxes.row, block_kv - 1)
    dense = _dense(part.numeral, boxes.low, boxes.high, slack)[0]
    first = next_in(part.numeral, boxes.first, boxes.low, boxes.high)
    last = last_in(part.numeral, boxes.last, boxes.low, boxes.high)
    from_key, to_key = torch.full_like(offset, FAR), torch.full_like(offset, -FAR)
    # The first box of a row that is dense: the widest ones come first.
    place = (dense & (first <= last)).nonzero()[:, 0]
    row = boxes.row[place]
    leads = torch.ones_like(row, dtype=torch.bool)
    leads[1:] = row[1:] != row[:-1]
    place, row = place[leads], row[leads]
    from_key[row] = first[place] - offset[row]
    to_key[row] = last[place] - offset[row]
    begin = count.cumsum(0) - count
    return _Dropped(part.numeral, offset, boxes, begin, count, dense, last, from_key, to_key)


def _dense(
    tree: Numeral, low: torch.Tensor, high: torch.Tensor, slack: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Whether no gap between numbers of a box exceeds `slack`; the box's first and last number."""
    if isinstance(tree, Leaf):
        return torch.ones_like(slack, dtype=torch.bool), low[:, tree.index], high[:, tree.index]
    below, first, last = _dense(tree.minor, low, high, slack)
    last = last.clamp(max=tree.radix - 1)
    gap = tree.radix - 1 - last + first
    above, top_first, top_last = _dense(
        tree.major, low, high, ((slack - gap) // tree.radix).clamp(min=0)
    )
    joins = (gap <= slack) | (top_first == top_last)
    dense = below & above & joins & (first <= last)
    return dense, top_first * tree.radix + first, top_last * tree.radix + last


@dataclass(frozen=True)
class KeyRanges:
    """Ranges of keys `first..last` of rows, both included; `[ranges]` each."""

    row: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor


def key_ranges(tree: Numeral, boxes: Boxes, offset: torch.Tensor, block_kv: int) -> KeyRanges:
    """The segments of boxes: both ends are keys, and no gap inside holds a tile.

    `offset` `[rows]` was added to keys before they were written in digits.
    """
    slack = torch.full_like(boxes.row, block_kv - 1)
    owner, first, last = _enumerated(tree, boxes.low, boxes.high, slack)
    row = _at(boxes.row, owner)
    cut = (joined(tree, boxes.low) < boxes.first) | (joined(tree, boxes.high) > boxes.last)
    if bool(cut.any()):
        # Cut to the range, a box still begins and ends with keys of its own.
        least = next_in(tree, boxes.first, boxes.low, boxes.high)
        most = last_in(tree, boxes.last, boxes.low, boxes.high)
        first = torch.maximum(first, _at(least, owner))
        last = torch.minimum(last, _at(most, owner))
        some = first <= last
        row, first, last = row[some], first[some], last[some]
    if bool(offset.any()):
        move = _at(offset, row)
        first, last = first - move, last - move
    return KeyRanges(row, first, last)


Enumerated = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # box, first and last number


def _enumerated(
    tree: Numeral, low: torch.Tensor, high: torch.Tensor, slack: torch.Tensor
) -> Enumerated:
    """The segments of each box, joined over gaps of at most `slack` numbers."""
    count = len(slack)
    if isinstance(tree, Leaf):
        owner = torch.arange(count, device=slack.device)
        return owner, low[:, tree.index], high[:, tree.index]
    owner, first, last = _enumerated(tree.minor, low, high, slack)
    last = last.clamp(max=tree.radix - 1)
    inside = first <= last
    if not bool(inside.all()):
        owner, first, last = owner[inside], first[inside], last[inside]
    if not len(owner):
        return owner, first, last
    per_box = torch.bincount(owner, minlength=count)
    begin = per_box.cumsum(0) - per_box
    # A box with one segment below, whose end is near the next one's start, is not taken apart.
    single = per_box == 1
    at = begin.clamp(max=len(first) - 1)
    wrap = torch.where(single, tree.radix - 1 - _at(last, at) + _at(first, at), slack + 1)
    joined = wrap <= slack
    above = torch.where(joined, (slack - wrap) // tree.radix, 0)
    boxes, top_first, top_last = _enumerated(tree.major, low, high, above)
    some = per_box > 0
    if not bool(some.all()):
        kept = _at(some, boxes)
        boxes, top_first, top_last = boxes[kept], top_first[kept], top_last[kept]
    if not bool(joined.all()):
        whole = _at(joined, boxes)
        place, digit = spread(top_first, torch.where(whole, top_first, top_last) + 1)
        ends = _at(torch.where(whole, top_last, top_first), place)
        boxes, top_first, top_last = _at(boxes, place), digit, torch.maximum(digit, ends)
    which = _at(begin, boxes)
    if len(owner) > int(some.sum()):
        place, which = spread(which, which + _at(per_box, boxes))
        boxes, top_first, top_last = (_at(x, place) for x in (boxes, top_first, top_last))
    first, last = _at(first, which), _at(last, which)
    return boxes, top_first * tree.radix + first, top_last * tree.radix + last


def _at(values: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """`values[place]`, in a third of the time."""
    return values.index_select(0, place)


def merged(parts: list[KeyRanges]) -> KeyRanges:
    """Segments in order of rows and keys, those that overlap or touch joined."""
    found = parts[0]
    if len(parts) > 1:
        found = KeyRanges(
            torch.cat([part.row for part in parts]),
            torch.cat([part.first for part in parts]),
            torch.cat([part.last for part in parts]),
        )
    if not len(found.row):
        return found
    span = int(found.last.max()) + 2
    begin_of_row = found.row * span
    first, last = begin_of_row + found.first, begin_of_row + found.last
    if bool((first[1:] > last[:-1] + 1).all()):
        return found
    if not bool((first[1:] >= first[:-1]).all()):
        first, order = first.sort()
        last = last[order]
    reach = last.cummax(0).values
    starts = torch.ones_like(first, dtype=torch.bool)
    starts[1:] = first[1:] > reach[:-1] + 1
    begin = starts.nonzero()[:, 0]
    end = torch.cat([begin[1:], begin.new_tensor([len(first)])]) - 1
    row = first[begin] // span
    return KeyRanges(row, first[begin] - row * span, reach[end] - row * span)
