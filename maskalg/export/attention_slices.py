"""A mask as a list of attention slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..engine.extents import Lengths
from ..errors import MaskValueError
from ..formula.expression import Expression
from .elements import Elements, edges

Interval = tuple[int, int]

# The kind of a slice by how both ends of its interval move from one query to the next.
_STEPS: Final = {(0, 0): 0, (0, 1): 1, (1, 1): 3, (1, 0): 2}


@dataclass
class _Slice:
    """A slice that grows by a query at a time."""

    first: int
    start: int
    last: Interval
    step: Interval | None = None

    def next(self) -> list[tuple[Interval, Interval]]:
        """The intervals by which it may grow, each with its step."""
        steps = _STEPS if self.step is None else (self.step,)
        return [((self.last[0] + a, self.last[1] + b), (a, b)) for a, b in steps]


def to_attention_slices(
    mask: Expression, q_len: int, kv_len: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`(q_ranges, k_ranges, kinds)` of disjoint slices whose union is the mask.

    The format of `maskalg.attention_slices`. Neighbouring queries whose intervals of keys stay or
    move by one share a slice; any mask has such a list, a scattered one a long list. Every element
    is looked at once.

    Args:
        mask: a mask that is the same for the whole batch and all heads.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.

    Returns:
        int32 `[slices, 2]`, `[slices, 2]` and `[slices]`, in the order of their first queries and
        keys, on the CPU.

    Raises:
        ValueError: the mask differs between batch entries or heads.

    Source: MagiAttention (SandAI, 2025).
    """
    elements = Elements("to_attention_slices", mask, Lengths(q_len, kv_len))
    if elements.sizes.batch > 1 or elements.sizes.heads > 1:
        raise one_mask_only("to_attention_slices", elements.sizes.batch, elements.sizes.heads)
    found: list[tuple[int, int, int, int, int]] = []
    growing: list[_Slice] = []
    for first, kept in elements.by_rows():
        for row, intervals in enumerate(_intervals(kept[0, 0]), first):
            growing = _grown(growing, row, intervals, found)
    for done in growing:
        found.append(_finished(done, elements.extents.q_len))
    table = torch.tensor(sorted(found), dtype=torch.int32).reshape(-1, 5)
    return table[:, (0, 2)], table[:, (1, 3)], table[:, 4]


def _intervals(kept: torch.Tensor) -> list[list[Interval]]:
    """The intervals of keys of each row of `[rows, kv_len]`."""
    places = edges(kept).tolist()
    found: list[list[Interval]] = [[] for _ in range(len(kept))]
    for (row, start), (_, end) in zip(places[::2], places[1::2], strict=True):
        found[row].append((start, end))
    return found


def _grown(
    growing: list[_Slice],
    row: int,
    intervals: list[Interval],
    found: list[tuple[int, int, int, int, int]],
) -> list[_Slice]:
    """The slices after one more query; those that cannot grow are added to `found`."""
    left = dict.fromkeys(intervals)
    result = []
    for part in growing:
        fitting = next(((to, step) for to, step in part.next() if to in left), None)
        if fitting is None:
            found.append(_finished(part, row))
            continue
        part.last, part.step = fitting
        del left[part.last]
        result.append(part)
    return result + [_Slice(row, interval[0], interval) for interval in left]


def _finished(part: _Slice, end: int) -> tuple[int, int, int, int, int]:
    """First query, first key, their ends, and the kind."""
    kind = 0 if part.step is None else _STEPS[part.step]
    return part.first, part.start, end, part.last[1], kind


def one_mask_only(call: str, batch: int, heads: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the format holds one mask for the whole batch and all heads, this one differs "
        f"between {batch} batch entries and {heads} heads. Export each on its own, with the "
        "tensors of one entry."
    )
