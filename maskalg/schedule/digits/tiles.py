"""From boxes of keys to the tiles they meet, at a cost that follows the tiles that are met.

A box is a set of segments of consecutive keys, one for each choice of its upper digits. Segments
with less than a tile between them are met by the same tiles as one long segment, so digits are
enumerated only from the first one that leaves a whole tile free.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .boxes import Boxes
from .digits import Digit, Numeral, joined, last_in, next_in


@dataclass(frozen=True)
class KeyRanges:
    """Keys `first..last` of rows, both included; `[ranges]` each."""

    row: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor


def key_ranges(tree: Numeral, boxes: Boxes, offset: torch.Tensor, block_kv: int) -> KeyRanges:
    """The keys of boxes; gaps inside a segment are too short to hold a tile, its ends are keys.

    `offset` `[rows]` is what was added to keys before they were written in digits.
    """
    slack = torch.full_like(boxes.row, block_kv - 1)
    owner, first, last = _enumerated(tree, boxes.low, boxes.high, slack)
    row = boxes.row[owner]
    cut = (joined(tree, boxes.low) < boxes.first) | (joined(tree, boxes.high) > boxes.last)
    if bool(cut.any()):
        # Both ends of what the range of keys leaves of a box are keys of the box.
        least = next_in(tree, boxes.first, boxes.low, boxes.high)
        most = last_in(tree, boxes.last, boxes.low, boxes.high)
        first = torch.maximum(first, least[owner])
        last = torch.minimum(last, most[owner])
        some = first <= last
        row, first, last = row[some], first[some], last[some]
    if bool(offset.any()):
        first, last = first - offset[row], last - offset[row]
    return KeyRanges(row, first, last)


Enumerated = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # box, first and last number


def _enumerated(
    tree: Numeral, low: torch.Tensor, high: torch.Tensor, slack: torch.Tensor
) -> Enumerated:
    """The segments of each box, joined over gaps of at most `slack` numbers."""
    count = len(slack)
    if isinstance(tree, Digit):
        owner = torch.arange(count, device=slack.device)
        return owner, low[:, tree.index], high[:, tree.index]
    owner, first, last = _enumerated(tree.minor, low, high, slack)
    last = last.clamp(max=tree.radix - 1)
    inside = first <= last
    owner, first, last = owner[inside], first[inside], last[inside]
    if not len(owner):
        return owner, first, last
    per_box = torch.bincount(owner, minlength=count)
    begin = per_box.cumsum(0) - per_box
    if not bool((owner[1:] >= owner[:-1]).all()):
        order = owner.argsort(stable=True)
        first, last = first[order], last[order]
    # A box with one segment below, whose end is near the next one's start, is not taken apart.
    single = per_box == 1
    at = begin.clamp(max=len(first) - 1)
    wrap = torch.where(single, tree.radix - 1 - last[at] + first[at], slack + 1)
    joined = wrap <= slack
    above = torch.where(joined, (slack - wrap) // tree.radix, 0)
    boxes, top_first, top_last = _enumerated(tree.major, low, high, above)
    kept = per_box[boxes] > 0
    boxes, top_first, top_last = boxes[kept], top_first[kept], top_last[kept]
    together = joined[boxes]
    mine = boxes[together]
    whole = (
        mine,
        top_first[together] * tree.radix + first[at[mine]],
        top_last[together] * tree.radix + last[at[mine]],
    )
    if len(mine) == len(boxes):
        return whole
    apart = ~together
    boxes, digit = spread(boxes[apart], top_first[apart], top_last[apart])
    base = digit * tree.radix
    if len(first) == int((per_box > 0).sum()):
        which = begin[boxes]
    else:
        base = base.repeat_interleave(per_box[boxes])
        boxes, which = spread(boxes, begin[boxes], (begin + per_box)[boxes] - 1)
    taken = (boxes, base + first[which], base + last[which])
    if not len(mine):
        return taken
    return (
        torch.cat([whole[0], taken[0]]),
        torch.cat([whole[1], taken[1]]),
        torch.cat([whole[2], taken[2]]),
    )


def spread(
    owner: torch.Tensor, first: torch.Tensor, last: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every number of the intervals `first..last`, with the owner of each."""
    count = last - first + 1
    start = count.cumsum(0) - count
    each = torch.repeat_interleave(first - start, count)
    return owner.repeat_interleave(count), each + torch.arange(len(each), device=each.device)


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
