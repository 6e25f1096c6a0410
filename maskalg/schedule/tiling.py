"""A call cut into tiles, the argument of every rung."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import torch

from ..engine.evaluate import device_of
from ..engine.extents import Extents, dependence
from ..engine.normal_form import Bound
from ..errors import MaskValueError
from ..formula.parameters import plain_number

Of = Literal["queries", "keys", "keys, either way"]
"""The index along the rows of tiles; columns are of the other. A kernel goes along them from the
first column on, or either way: from the first or from the last."""

MOST_TILES: Final = 1 << 22
"""More are not labelled: memory and time grow with their number."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of a mask with its values, in one call.

    Attributes:
        form: the mask.
        extents: lengths, batch entries and heads of the call.
        block: `(block_q, block_kv)`, the sides of a tile; the last ones may be cut by the lengths.
        on: where to compute; None means where the tensors of the mask are.
    """

    form: Bound
    extents: Extents
    block: tuple[int, int]
    on: torch.device | None = None

    @cached_property
    def device(self) -> torch.device:
        return device_of(self.form) if self.on is None else self.on

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch entries and heads (1 where the mask ignores them), rows and columns of tiles."""
        told = dependence(self.form.structure.mask, self.form, self.extents)
        (block_q, block_kv), extents = self.block, self.extents
        return told.batch, told.heads, -(-extents.q_len // block_q), -(-extents.kv_len // block_kv)

    @property
    def key(self) -> tuple[object, ...]:
        """All inputs of labels other than the mask and its values."""
        return (self.block, self.shape, self.extents.q_len, self.extents.kv_len, self.device)


def block_pair(block: object) -> tuple[int, int]:
    """`block` as `(block_q, block_kv)`."""
    sides = block if isinstance(block, (tuple, list)) else (block, block)
    pair = [plain_number(side) for side in sides]
    if len(pair) != 2 or not all(type(side) is int and side >= 1 for side in pair):
        raise block_size(block)
    return pair[0], pair[1]


def block_size(value: object) -> MaskValueError:
    return MaskValueError(
        f"block must be an integer >= 1 or a pair (block_q, block_kv) of them, got {value!r}."
    )
