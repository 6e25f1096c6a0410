"""Columns and diagonals chosen for each head."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from ...formula import nodes
from ...formula.entries import Entries, integers, of_rank
from ...formula.nodes import SCORE, K, Q
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import at_head, entries_within, flags_per_head, integer, marked
from ..by_hand import BATCH_SIZE, ENTRIES, HEADS, Bools, MaskRows, entry, padded, pairs, row
from ..helped import Ways

__all__ = ["vertical_slash"]


class _VerticalSlash(Ways, name="vertical_slash"):
    """Columns and diagonals that flags keep: `vertical_slash(vertical, slash)`, or from lists."""

    __slots__ = ()

    def __call__(self, vertical: Entries, slash: Entries) -> Mask:
        """q >= k and (vertical[k] or slash[q - k]).

        Args:
            vertical: Boolean tensor over keys: `[length]`, `[heads, length]` or
                `[batch, heads, length]`; dimensions of size 1 are broadcast.
            slash: Boolean tensor over distances q - k, likewise; entry 0 is the diagonal.

        Source: the vertical-slash pattern of MInference (Jiang et al., 2024).
        """
        columns = flags_per_head("vertical_slash", "vertical", vertical)
        diagonals = flags_per_head("vertical_slash", "slash", slash)
        distance = nodes.maximum(nodes.subtract(Q, K), nodes.const(0))
        kept = nodes.disjunction(at_head(columns, K), at_head(diagonals, distance))
        node = nodes.conjunction(nodes.ge(Q, K), kept)
        return Mask(node, SCORE, called("vertical_slash", columns, diagonals))

    def from_indices(self, vertical: Entries, slash: Entries, length: int) -> Mask:
        """Columns and diagonals by number, as MInference's kernels take them.

        Args:
            vertical: integer tensor `[count]`, `[heads, count]` or `[batch, heads, count]` of key
                positions, in any order.
            slash: integer tensor of such a shape, of distances q - k.
            length: number of positions, >= 0; all indices lie below it.

        Raises:
            ValueError: on the CPU, an index that is no position. On a GPU and in compiled
                functions indices are not checked, and such an index keeps nothing.
        """
        return self(_flags("vertical", vertical, length), _flags("slash", slash, length))


def _flags(name: str, given: Entries, length: int) -> torch.Tensor:
    call = "vertical_slash.from_indices"
    integer(call, "length", length, low=0)
    wanted = "[count], [heads, count] or [batch, heads, count]"
    indices = of_rank(call, name, integers(call, name, given), (1, 2, 3), wanted)
    entries_within(call, name, indices, 0, length)
    return marked(indices, length)


vertical_slash = _VerticalSlash()


# The second definition, and the rows of the catalogue.


def vertical_slash_by_hand(vertical: ArrayLike, slash: ArrayLike, **at: int) -> Bools:
    """Causal, and a chosen key `vertical[k]` or a chosen distance `slash[q − k]`."""
    columns, diagonals = padded(vertical, 3), padded(slash, 3)
    return pairs(
        lambda b, h, q, k: k <= q and (entry(columns, b, h, k) or entry(diagonals, b, h, q - k)),
        max(len(columns), len(diagonals)),
        max(columns.shape[1], diagonals.shape[1]),
        **at,
    )


def rows() -> MaskRows:
    random = np.random.default_rng(21)
    columns = random.random((BATCH_SIZE, HEADS, ENTRIES)) < 0.1
    diagonals = random.random((HEADS, ENTRIES)) < 0.15
    return {
        "vertical and slash": row(vertical_slash, vertical_slash_by_hand, columns, diagonals),
        "vertical and slash for all heads": row(
            vertical_slash, vertical_slash_by_hand, columns[0, 0], diagonals[0]
        ),
    }
