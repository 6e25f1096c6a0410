"""The maximum (or the union of bits) of any range of positions, by tables of powers of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from .sets import At

Join = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Maxima:
    """`table[j, ..., x]` joins the entries x .. x + 2**j - 1, `[levels, batch, heads, length]`.

    `join` takes the same entry twice without harm: a maximum, or the union of bits.
    """

    table: torch.Tensor
    join: Join

    @staticmethod
    def of(entries: torch.Tensor, longest: int, join: Join) -> Maxima:
        """For ranges of up to `longest` of the entries `[batch, heads, length]`."""
        levels = [entries]
        while 2 ** len(levels) <= min(longest, entries.shape[-1]):
            reach = 2 ** (len(levels) - 1)
            last = levels[-1]
            # Past the end stands what no range of that length starts at.
            later = torch.cat([last[..., reach:], last[..., -reach:]], dim=-1)
            levels.append(join(last, later))
        return Maxima(torch.stack(levels), join)

    def over(self, at: At, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """The entries low..high, both included, joined."""
        exponent = torch.frexp((high - low + 1).to(torch.float64)).exponent.to(torch.int64) - 1
        first = self._entry(at, low, exponent)
        return self.join(first, self._entry(at, high + 1 - (1 << exponent), exponent))

    def _entry(self, at: At, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        batch = at[0] if self.table.shape[1] > 1 else torch.zeros_like(at[0])
        head = at[1] if self.table.shape[2] > 1 else torch.zeros_like(at[1])
        return self.table[level, batch, head, x]


def union(bits: torch.Tensor) -> torch.Tensor:
    """The union of the bits along the last dimension."""
    while bits.shape[-1] > 1:
        if bits.shape[-1] % 2:
            bits = pad(bits, (0, 1))
        bits = bits[..., ::2] | bits[..., 1::2]
    return bits[..., 0]
