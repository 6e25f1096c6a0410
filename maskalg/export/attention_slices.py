"""A mask as a list of attention slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from ..engine.extents import Lengths
from ..errors import MaskValueError
from .elements import Elements

if TYPE_CHECKING:
    from ..values.algebra import Mask

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def to_attention_slices(
    mask: Mask, q_len: int, kv_len: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`(q_ranges, k_ranges, kinds)` of disjoint slices whose union is the mask.

    The format of `maskalg.attention_slices`. Neighbouring queries whose intervals of keys stay or
    move by one share a slice. Any mask has such a list; that of a scattered mask is long. No
    element is evaluated if the proof gives the intervals.

    Args:
        mask: a mask that is the same for the whole batch and all heads.
        q_len: number of queries.
        kv_len: number of keys; `None` means `q_len`.

    Returns:
        int32 `[slices, 2]`, `[slices, 2]` and `[slices]`, in the order of their first queries and
        keys, on the CPU.

    Raises:
        ValueError: the mask differs between batch entries or heads, or the proof gives no intervals
            and there are too many elements to evaluate.

    Source: MagiAttention (SandAI, 2025).
    """
    lengths = Lengths(q_len, kv_len)
    sizes = Elements("to_attention_slices", mask, lengths, ("batch", "head")).sizes
    if sizes.batch > 1 or sizes.heads > 1:
        raise one_mask_only("to_attention_slices", sizes.batch, sizes.heads)
    runs = mask._kept_runs(lengths).runs
    row, first, end = (each.long().numpy() for each in (runs.row_of, runs.first, runs.end))
    chain = _chains(row, first, end)
    order = chain.argsort(kind="stable")
    chain, row, first, end = (each[order] for each in (chain, row, first, end))
    begins, step = _cut(chain, first, end)
    place = begins.nonzero()[0]
    last = np.append(place[1:], len(row))[: len(place)] - 1
    kind = np.where(last > place, step[last], 0)
    slices = np.stack([row[place], row[last] + 1, first[place], end[last], kind], axis=1)
    table = torch.from_numpy(slices[order[place].argsort()].astype(np.int32))
    return table[:, :2], table[:, 2:4], table[:, 4]


def _chains(row: Integers, first: Integers, end: Integers) -> Integers:
    """For each interval, the interval at which its chain begins.

    A chain is made of intervals of neighbouring queries whose ends each stay or move by one. As
    intervals of a query do not touch, an interval follows one other at most.
    """
    place = np.arange(len(row))
    width = int(end.max(initial=0)) + 1
    key = row * width + first
    near = np.maximum(np.searchsorted(key, key - width, side="right") - 1, 0)
    stays = (first - first[near] | end - end[near]) >> 1 == 0  # or moves by 1
    chain = np.where(stays & (row[near] == row - 1), near, place)
    while not np.array_equal(before := chain[chain], chain):
        chain = before
    return chain


def _cut(chain: Integers, first: Integers, end: Integers) -> tuple[Booleans, Integers]:
    """Where slices begin, and how an interval moved from the one before: a number of `kinds`.

    A slice takes the first move of its chain, and all further moves like it. The first interval
    that moves otherwise begins another slice, which takes the next move of any kind.
    """
    linked, other, known = np.zeros((3, len(chain)), dtype=np.bool_)
    linked[1:] = chain[1:] == chain[:-1]
    step = np.zeros_like(chain)
    step[1:] = 2 * np.diff(first) + np.diff(end)
    # Intervals that moved otherwise than the one before. The first move of a chain cuts nothing,
    # and of several changes in a row every second one cuts.
    other[1:] = linked[1:] & (~linked[:-1] | (step[1:] != step[:-1]))
    known[1:] = ~other[:-1]
    known[:1] = True
    place = np.arange(len(chain))
    since = np.maximum.accumulate(np.where(known, place, 0))
    opens = ~np.append(True, linked[:-1])[: len(chain)]
    cuts = other & (opens[since] == ((place - since) % 2 == 1))
    return ~linked | cuts, step


def one_mask_only(call: str, batch: int, heads: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the format holds one mask for the whole batch and all heads, this one differs "
        f"between {batch} batch entries and {heads} heads. Export each entry and head on its own, "
        "with its own tensors."
    )
