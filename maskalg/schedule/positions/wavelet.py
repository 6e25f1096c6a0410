"""How many ranks of a range of places lie between two ranks: a wavelet matrix.

Level by level, from the highest bit of the ranks down, those with a 0 go before those with a 1;
prefix sums of the zeros say where a range of places goes. A bound costs two look-ups a level.

Source: Claude, Navarro and Ordonez, "The wavelet matrix", 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .sets import At


@dataclass(frozen=True)
class Wavelet:
    """`zeros[level]`, int32 `[places + 1]`, counts the zeros before each place of a level.

    Rows of `shape` (batch, heads, length) follow each other in the places of the first level.
    """

    zeros: tuple[torch.Tensor, ...]
    shape: tuple[int, int, int]

    @staticmethod
    def of(ranks: torch.Tensor, most: int) -> Wavelet:
        """For integers 0..most `[batch, heads, length]`."""
        flat = ranks.flatten()
        place = torch.arange(len(flat), device=flat.device)
        levels = []
        for bit in reversed(range(most.bit_length())):
            zero = ((flat >> bit) & 1) == 0
            count = torch.zeros(len(flat) + 1, dtype=torch.int32, device=flat.device)
            count[1:] = zero.cumsum(0, dtype=torch.int32)
            levels.append(count)
            goes = torch.where(zero, count[:-1], count[-1] + place - count[:-1])
            flat = torch.empty_like(flat).scatter_(0, goes, flat)
        return Wavelet(tuple(levels), (ranks.shape[0], ranks.shape[1], ranks.shape[2]))

    def between(
        self,
        at: At,
        positions: tuple[torch.Tensor, torch.Tensor],
        low: torch.Tensor,
        high: torch.Tensor,
    ) -> torch.Tensor:
        """How many ranks in low..high - 1 stand at the positions first..last, ends included."""
        row = at[0].clamp(max=self.shape[0] - 1) * self.shape[1] + at[1].clamp(
            max=self.shape[1] - 1
        )
        first = row * self.shape[2] + positions[0]
        end = row * self.shape[2] + positions[1] + 1
        return self._below(first, end, high) - self._below(first, end, low)

    def _below(self, first: torch.Tensor, end: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(rank)
        for level, zeros in enumerate(self.zeros):
            one = ((rank >> (len(self.zeros) - 1 - level)) & 1) == 1
            before, upto = zeros[first].long(), zeros[end].long()
            total = total + torch.where(one, upto - before, 0)
            first = torch.where(one, first - before + zeros[-1], before)
            end = torch.where(one, end - upto + zeros[-1], upto)
        return total
