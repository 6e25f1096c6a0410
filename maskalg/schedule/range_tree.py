"""Does a range of positions hold an entry between two values: a tree of sorted chunks.

Level j holds the entries of every aligned chunk of 2**j positions in order. A range is at most two
chunks of each level, and in a sorted chunk two searches tell how many entries lie between.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .sets import At


@dataclass(frozen=True)
class RangeTree:
    """Entries `[batch, heads, length]` by rank; `levels` hold (row and chunk, rank) as one number.

    `values` are all entries in order: a value becomes a rank by a search in them.
    """

    values: torch.Tensor
    levels: tuple[torch.Tensor, ...]
    shape: tuple[int, int, int]

    @staticmethod
    def of(entries: torch.Tensor, members: torch.Tensor, longest: int) -> RangeTree:
        """For ranges of up to `longest` positions; entries that are no `members` are left out."""
        batch, heads, length = np.broadcast_shapes(entries.shape, members.shape)
        shape = (batch, heads, length)
        flat = entries.expand(shape).reshape(-1)
        values = flat.sort().values
        # A rank past all others is in no range.
        ranks = torch.where(
            members.expand(shape).reshape(-1), torch.searchsorted(values, flat), flat.numel()
        )
        tree = RangeTree(values, (), shape)
        row = torch.arange(batch * heads, device=flat.device).repeat_interleave(length)
        place = torch.arange(length, device=flat.device).repeat(batch * heads)
        count = max(min(longest, length), 1).bit_length() + 1
        levels = [
            (tree._chunk(row, place >> level, level) + ranks).sort().values
            for level in range(count)
        ]
        return RangeTree(values, tuple(levels), shape)

    def between(
        self,
        at: At,
        positions: tuple[torch.Tensor, torch.Tensor],
        least: torch.Tensor,
        most: torch.Tensor,
    ) -> torch.Tensor:
        """How many entries in least..most stand at the positions first..last, ends included."""
        low = torch.searchsorted(self.values, least)
        high = torch.maximum(torch.searchsorted(self.values, most, right=True), low)
        row = at[0].clamp(max=self.shape[0] - 1) * self.shape[1] + at[1].clamp(
            max=self.shape[1] - 1
        )
        left, right = positions[0], positions[1] + 1
        total = torch.zeros_like(low)
        for level, entries in enumerate(self.levels):
            take = ((left & 1) == 1) & (left < right)
            total = total + torch.where(take, self._count(entries, row, left, level, low, high), 0)
            left = left + take.to(left.dtype)
            take = ((right & 1) == 1) & (left < right)
            right = right - take.to(right.dtype)
            total = total + torch.where(take, self._count(entries, row, right, level, low, high), 0)
            left, right = left >> 1, right >> 1
        return total

    def _count(
        self,
        entries: torch.Tensor,
        row: torch.Tensor,
        chunk: torch.Tensor,
        level: int,
        low: torch.Tensor,
        high: torch.Tensor,
    ) -> torch.Tensor:
        begin = self._chunk(row, chunk, level)
        return torch.searchsorted(entries, begin + high) - torch.searchsorted(entries, begin + low)

    def _chunk(self, row: torch.Tensor, chunk: torch.Tensor, level: int) -> torch.Tensor:
        """The number that the entries of a chunk of a row start at."""
        chunks = (self.shape[2] >> level) + 1
        return (row * chunks + chunk) * (self.values.numel() + 1)
