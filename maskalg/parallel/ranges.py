"""Ranges of tokens that lie in the same calls of attention, and what the calls found, by range."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import torch

from ..backends.merge import merge
from ..backends.results import empty_result
from ..engine.float8 import out_dtype

_MOST_HELD: Final = 4  # results of a range
_Result = tuple[torch.Tensor, torch.Tensor]  # output and lse


@dataclass(frozen=True, eq=False)
class Call:
    """One call of attention: queries and keys that are each consecutive tokens.

    Attributes:
        queries: where they lie among the rank's own.
        keys: where they lie among the keys at hand.
        q_start, kv_start: the token that the first of them is.
    """

    queries: slice
    keys: slice
    q_start: int
    kv_start: int


@dataclass(frozen=True, eq=False)
class Ranges:
    """Tokens cut so that all of a range lie in the same calls.

    Attributes:
        parts: each range, and the calls it lies in, each with its place among that call's tokens.
        whole: a call of all tokens, if there is one.
    """

    parts: tuple[tuple[slice, tuple[tuple[Call, slice], ...]], ...]
    whole: Call | None

    @classmethod
    def of(cls, calls: Iterable[tuple[Call, slice]], count: int) -> Ranges:
        """The ranges of `count` tokens, from calls and the tokens that each is of."""
        calls = tuple(calls)
        every = slice(0, count)
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
        return cls(parts, next((call for call, tokens in calls if tokens == every), None))

    def of_call(self, call: Call) -> Iterator[tuple[int, slice]]:
        """The numbers of the ranges of a call, each with its place among the call's tokens."""
        for number, (_, calls) in enumerate(self.parts):
            for each, place in calls:
                if each is call:
                    yield number, place

    def joined(
        self,
        results: Sequence[torch.Tensor | None],
        whole: torch.Tensor | None,
        new: Callable[[], torch.Tensor],
        nothing: float = 0.0,
    ) -> torch.Tensor:
        """Results of ranges `[batch, heads, tokens, ...]` as one tensor of all tokens.

        Args:
            results: of each range; None is one of no call.
            whole: what `self.whole` found: results of ranges in no other call lie in it already,
                and the others are written into it.
            new: an empty tensor for all tokens, for where there is no `whole`.
            nothing: what ranges of no call hold.
        """
        if len(results) == 1 and results[0] is not None:
            return results[0]
        total = new() if whole is None else whole
        for (place, calls), result in zip(self.parts, results, strict=True):
            if result is None:
                total[:, :, place] = nothing
            elif whole is None or len(calls) > 1:
                total[:, :, place] = result
        return total


class Merged:
    """Outputs and lses of queries, merged where calls have some in common.

    A few results of a range are held and merged at once. Where more come, as around a ring of
    many ranks, each is merged with those before, in float32, so that memory does not grow with
    the ranks.
    """

    def __init__(self, ranges: Ranges, query: torch.Tensor, value_dim: int) -> None:
        """Nothing yet, of all queries of `query`."""
        self.ranges, self.query, self.value_dim = ranges, query, value_dim
        self.dtype = out_dtype(query.dtype)
        self.held: list[list[_Result]] = [[] for _ in ranges.parts]
        self.whole: tuple[torch.Tensor | None, torch.Tensor | None] = None, None

    def add(self, call: Call, result: _Result) -> None:
        """Add the output and lse of a call's queries."""
        if call is self.ranges.whole:
            self.whole = result
        out, lse = result
        wide = summed_in(self.dtype)
        for number, place in self.ranges.of_call(call):
            held = self.held[number]
            held.append((out[:, :, place], lse[:, :, place]))
            if len(held) > 1 and len(self.ranges.parts[number][1]) > _MOST_HELD:
                held[:] = [_merged([(one.to(wide), of_one) for one, of_one in held])]

    def total(self) -> _Result:
        """Output and lse of all queries; 0 and -inf for those that are in no call."""
        results: list[tuple[torch.Tensor | None, torch.Tensor | None]] = []
        for held in self.held:
            if held:
                out, lse = held[0] if len(held) == 1 else _merged(held)
                results.append((out.to(self.dtype), lse))
            else:
                results.append((None, None))
        outs, lses = ([each[n] for each in results] for n in (0, 1))
        new = partial(empty_result, self.query, self.value_dim, self.dtype)
        rows = partial(self.query.new_empty, self.query.shape[:3], dtype=summed_in(self.dtype))
        whole, of_whole = self.whole
        return (
            self.ranges.joined(outs, whole, new),
            self.ranges.joined(lses, of_whole, rows, -math.inf),
        )


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype that many numbers of `dtype` are added in: float32, or float64 of float64."""
    return torch.promote_types(dtype, torch.float32)


def _merged(results: Sequence[_Result]) -> _Result:
    outs, lses = zip(*results, strict=True)
    return merge(outs, lses)


class Sum:
    """Gradients of tokens, added call by call; rounded to their dtype once."""

    def __init__(self, ranges: Ranges, like: torch.Tensor) -> None:
        """Nothing yet, of tokens that lie as `like` does."""
        self.ranges, self.like = ranges, like
        self.so_far: list[torch.Tensor | None] = [None for _ in ranges.parts]
        self.whole: torch.Tensor | None = None

    def add(self, call: Call, found: torch.Tensor) -> None:
        """Add the gradients of a call's tokens."""
        if call is self.ranges.whole:
            self.whole = found
        for number, place in self.ranges.of_call(call):
            so_far, mine = self.so_far[number], found[:, :, place]
            if so_far is None:
                self.so_far[number] = mine
                continue
            if len(self.ranges.parts[number][1]) > 2:
                so_far = so_far.to(summed_in(found.dtype))
            self.so_far[number] = so_far + mine

    def total(self) -> torch.Tensor:
        """The gradients of all tokens, in the dtype of the tensor they are of."""
        dtype = self.like.dtype
        results = [None if x is None else x.to(dtype) for x in self.so_far]
        return self.ranges.joined(results, self.whole, partial(empty_result, self.like))
