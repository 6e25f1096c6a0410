"""The elements of a mask, a strip of the matrix at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..engine.evaluate import device_of, kept_by_rows
from ..engine.extents import Dependence, Extents, Lengths, dependence, is_untold, resolve
from ..engine.normal_form import bound
from ..errors import MaskValueError, not_a_mask
from ..formula.expression import Expression

_ALL = {"batch": "the whole batch", "head": "all heads"}


class Elements:
    """A mask at given lengths.

    Attributes:
        extents: the lengths, the batch and the heads.
        sizes: how many batch entries and heads the mask distinguishes.
    """

    extents: Extents
    sizes: Dependence

    def __init__(
        self, call: str, mask: Expression, lengths: Lengths, one_of: tuple[str, ...] = ()
    ) -> None:
        if not isinstance(mask, Expression) or mask.kind != "mask":
            raise not_a_mask(f"{call} writes", mask)
        refuse_untold(call, mask, *one_of)
        self._form = bound(mask)
        self.extents = resolve(self._form, lengths)
        self.sizes = dependence(self._form.structure.mask, self._form, self.extents)
        self.device = device_of(self._form)

    def by_rows(self) -> Iterator[tuple[int, torch.Tensor]]:
        """First query, and `[batch, heads, rows, kv_len]` from it on, strip after strip."""
        return kept_by_rows(self._form, self.extents)


def refuse_untold(call: str, mask: Expression, *one_of: str) -> None:
    """Refuse a mask that computes with "batch" or "head" where a format holds one mask for all."""
    for index in one_of:
        if is_untold(bound(mask), index):
            raise MaskValueError(
                f"{call}: the format holds one mask for {_ALL[index]}, and {mask} computes with "
                f"`{index}`. Export each on its own, with a number in place of `{index}`."
            )


def edges(kept: torch.Tensor) -> torch.Tensor:
    """The edges of the intervals of True in each row, `[edges, dimensions]`, sorted by row.

    Edges alternate: the last number is the first place of an interval, then one past its last.
    """
    end = torch.zeros_like(kept[..., :1])
    bounded = torch.cat([end, kept, end], dim=-1)
    return (bounded[..., 1:] ^ bounded[..., :-1]).nonzero()
