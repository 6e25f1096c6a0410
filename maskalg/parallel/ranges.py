"""Ranges of tokens that lie in the same calls of attention, and what the calls found, by range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch

from ..backends.results import empty_result


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
        for number, (_, calls) in enumerate(self.ranges.parts):
            for each, place in calls:
                if each is call:
                    self.so_far[number] = self._added(number, len(calls), found[:, :, place])

    def _added(self, number: int, count: int, found: torch.Tensor) -> torch.Tensor:
        so_far = self.so_far[number]
        if so_far is None:
            return found
        if count > 2:
            so_far = so_far.to(torch.promote_types(found.dtype, torch.float32))
        return so_far + found

    def total(self) -> torch.Tensor:
        """The gradients of all tokens, in the dtype of the tensor they are of."""
        dtype = self.like.dtype
        results = [None if x is None else x.to(dtype) for x in self.so_far]
        return self.ranges.joined(results, self.whole, partial(empty_result, self.like))
