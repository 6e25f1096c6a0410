"""Ranges of tokens that lie in the same calls of attention, and the results of calls by range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from ..backends.merge import merge_into
from ..backends.results import empty_result
from ..engine.float8 import out_dtype

_MOST_HELD: Final = 4  # results held for one range
_ALIGNED: Final = 16  # bytes: tensors aligned to them are copied by descriptor
_Result = tuple[torch.Tensor, torch.Tensor]  # output and lse


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention: queries and keys that are each consecutive tokens.

    Attributes:
        queries: places of the queries among the rank's own queries.
        keys: places of the keys among the keys that the rank holds for the call.
        q_start, kv_start: the tokens of the first query and the first key.
    """

    queries: slice
    keys: slice
    q_start: int
    kv_start: int


@dataclass(frozen=True, eq=False)
class Ranges:
    """Tokens cut into ranges: all tokens of a range are in the same calls.

    Attributes:
        parts: each range, and the calls it lies in, each with its place among that call's tokens.
        of_call: the numbers of the ranges of a call, each with its place among the call's tokens,
            None if it is all of them.
        placed: calls whose tokens do not overlap, and those tokens: such calls may write their
            results directly into the tensor of all tokens.
    """

    parts: tuple[tuple[slice, tuple[tuple[Call, slice], ...]], ...]
    of_call: dict[Call, list[tuple[int, slice | None]]]
    placed: dict[Call, slice]

    @classmethod
    def of(cls, calls: Iterable[tuple[Call, slice]], count: int) -> Ranges:
        """The ranges of `count` tokens, from calls and their tokens."""
        calls = tuple(calls)
        cuts = {0, count}.union(*((tokens.start, tokens.stop) for _, tokens in calls))
        parts = tuple(
            (
                slice(begin, end),
                tuple(
                    (call, slice(begin - tokens.start, end - tokens.start))
                    for call, tokens in calls
                    if tokens.start <= begin and end <= tokens.stop
                ),
            )
            for begin, end in pairwise(sorted(cuts))
        )
        of_call: dict[Call, list[tuple[int, slice | None]]] = {call: [] for call, _ in calls}
        sizes = {call: tokens.stop - tokens.start for call, tokens in calls}
        for number, (_, each) in enumerate(parts):
            for call, place in each:
                whole = place.stop - place.start == sizes[call]
                of_call[call].append((number, None if whole else place))
        placed: dict[Call, slice] = {}
        taken: set[int] = set()
        for call, tokens in sorted(calls, key=lambda each: each[1].start - each[1].stop):
            mine = {number for number, _ in of_call[call]}
            if taken.isdisjoint(mine):
                placed[call] = tokens
                taken |= mine
        return cls(parts, of_call, placed)

    def room(self, call: Call, whole: torch.Tensor) -> torch.Tensor | None:
        """A call's place in the tensor of all tokens, if the call may write its results there."""
        tokens = self.placed.get(call)
        return None if tokens is None else room_in(whole, tokens)

    def in_place(
        self, call: Call, whole: torch.Tensor, found: torch.Tensor, room: torch.Tensor | None
    ) -> torch.Tensor:
        """The result of a call, copied to its place in the tensor of all tokens if it has one."""
        if found is room or call not in self.placed:
            return found
        return whole[:, :, self.placed[call]].copy_(found)


def room_in(whole: torch.Tensor, tokens: slice) -> torch.Tensor | None:
    """These tokens of a tensor, as a view that a call may write its result to.

    None if kernels cannot address the view like a tensor of its own. `empty_result` laid out
    `whole`; `backends.Call` describes the `room` of a call.
    """
    batch, _, count, dim = whole.shape
    if batch > 1 and tokens.stop - tokens.start < count:
        return None
    return None if dim * whole.element_size() % _ALIGNED else whole[:, :, tokens]


def _cut(found: torch.Tensor, place: slice | None) -> torch.Tensor:
    """Some or all tokens of a call's result."""
    return found if place is None else found[:, :, place]


class Merged:
    """Outputs and lses of queries, merged where several calls have the same queries.

    A few results of a range are held and merged at once. If more come, as around a ring of many
    ranks, they are first merged into one, in float32, so that memory does not grow with the ranks.
    """

    def __init__(self, ranges: Ranges, query: torch.Tensor, value_dim: int) -> None:
        """An empty result for all queries of `query`."""
        dtype = out_dtype(query.dtype)
        self.ranges, self.out = ranges, empty_result(query, value_dim, dtype)
        self.lse = query.new_empty(query.shape[:3], dtype=summed_in(dtype))
        self.held: list[list[_Result]] = [[] for _ in ranges.parts]

    def room(self, call: Call) -> torch.Tensor | None:
        """The tensor that a call may write its output to, or None."""
        return self.ranges.room(call, self.out)

    def add(self, call: Call, result: _Result, room: torch.Tensor | None = None) -> None:
        """Add the output and lse of a call's queries; the output may lie in the room."""
        out, lse = result
        out = self.ranges.in_place(call, self.out, out, room)
        for number, place in self.ranges.of_call[call]:
            held = self.held[number]
            held.append((_cut(out, place), _cut(lse, place)))
            if len(held) == _MOST_HELD < len(self.ranges.parts[number][1]):
                first, of_first = held[0]
                wide = torch.empty_like(first, dtype=summed_in(first.dtype))
                of_wide = torch.empty_like(of_first)
                merge_into(wide, of_wide, held)
                held[:] = [(wide, of_wide)]

    def total(self) -> _Result:
        """Output and lse of all queries; 0 and -inf for those that are in no call."""
        for (place, calls), held in zip(self.ranges.parts, self.held, strict=True):
            out, lse = self.out[:, :, place], self.lse[:, :, place]
            if not held:
                out.zero_()
                lse.fill_(-math.inf)
            elif len(held) > 1:
                merge_into(out, lse, held)
            else:
                lse.copy_(held[0][1])
                if len(calls) > 1 or calls[0][0] not in self.ranges.placed:
                    out.copy_(held[0][0])
        return self.out, self.lse


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums of many numbers of `dtype`: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


class Sum:
    """Gradients of tokens, added call by call; rounded to their dtype once."""

    def __init__(self, ranges: Ranges, like: torch.Tensor, dim: int | None = None) -> None:
        """An empty sum for tokens laid out as `like`, of its head dimension or another one."""
        self.ranges, self.whole = ranges, empty_result(like, dim)
        self.so_far: list[torch.Tensor | None] = [None for _ in ranges.parts]
        self.left = [len(calls) for _, calls in ranges.parts]

    def room(self, call: Call) -> torch.Tensor | None:
        """The tensor that the gradients of a call may be written to, or None."""
        return self.ranges.room(call, self.whole)

    def add(self, call: Call, found: torch.Tensor, room: torch.Tensor | None = None) -> None:
        """Add the gradients of a call's tokens, which may lie in the room."""
        found = self.ranges.in_place(call, self.whole, found, room)
        for number, place in self.ranges.of_call[call]:
            so_far, tokens = self.so_far[number], self.ranges.parts[number][0]
            self.left[number] -= 1
            if self.left[number]:
                mine, wide = _cut(found, place), summed_in(found.dtype)
                self.so_far[number] = mine if so_far is None else so_far.to(wide).add_(mine)
            elif so_far is not None:
                torch.add(so_far, _cut(found, place), out=self.whole[:, :, tokens])
            elif call not in self.ranges.placed:
                self.whole[:, :, tokens] = _cut(found, place)

    def total(self) -> torch.Tensor:
        """The gradients of all tokens, in the dtype of their tensor."""
        for tokens, calls in self.ranges.parts:
            if not calls:
                self.whole[:, :, tokens] = 0
        return self.whole
