"""Masks and biases of the tiles that the CPU backend visits."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Final

import torch
import torch.nn.functional as F

from ...engine.evaluate import Environment, evaluate
from ...formula.nodes import Node
from ...formula.watched import PLAIN
from ..call import Call
from .formula import Formulas, formulas
from .plan import Group, Piece, Range

LOG2E: Final = 1 / math.log(2)


class Elements:
    """The mask and the bias of one group of a call, tile by tile.

    Attributes:
        unit: the units of scores in one natural unit: scores are in units of ln 2.
    """

    unit: float = LOG2E

    def __init__(self, call: Call, group: Group, dtype: torch.dtype) -> None:
        heads = range(call.extents.heads) if group.heads is None else group.heads
        self.indices = {
            "batch": torch.arange(*group.batch).view(-1, 1, 1, 1),
            "head": torch.tensor(list(heads)).view(1, -1, 1, 1),
        }
        self.dtype = dtype
        self.weighted = call.weight.formula is not None
        self.formulas: Formulas = formulas(call.form.structure)
        self.values = call.form.values

    @property
    def has_bias(self) -> bool:
        """Whether scores are more than products of queries and keys."""
        return self.formulas.bias.op != "score"

    def in_natural_units(self) -> Elements:
        """The same with scores in natural units: slower, but as large as floats can be."""
        natural = copy.copy(self)
        natural.unit = 1.0
        return natural

    def mask(
        self, scores: torch.Tensor, rows: Range, first: int, masked: tuple[Range, ...]
    ) -> None:
        """Put -inf into `scores` `[batch, heads, rows, columns]` where the mask drops a pair.

        Args:
            first: the key of the first column.
            masked: the ranges of keys to mask, within the columns.
        """
        if not masked:
            return
        for part, limit in _beside(scores, first, self._ceiling(rows, masked), masked):
            # Not an addition: +inf - inf would be NaN. Not `masked_fill_`: 20 times slower here.
            torch.minimum(part, limit, out=part)
            if self.has_bias and has_nan(part):
                part.masked_fill_(limit < 0, float("-inf"))

    def keep(
        self, weights: torch.Tensor, rows: Range, first: int, masked: tuple[Range, ...]
    ) -> None:
        """Put 0 into `weights` where the mask drops a pair; arguments as of `mask`."""
        if not masked:
            return
        for part, factor in _beside(weights, first, self._kept(rows, masked), masked):
            part.mul_(factor)
            if has_nan(part):
                part.masked_fill_(factor == 0, 0.0)

    def kept(self, rows: Range, piece: Piece) -> torch.Tensor:
        """True where the mask keeps a pair, over the columns of a piece; broadcastable."""
        return self._kept(rows, (piece.columns,)) > 0

    def field(self, number: int, rows: Range, columns: Range) -> torch.Tensor:
        """A field of the bias over a tile, in units of scores where it is added to a logarithm.

        Broadcastable to `[batch, heads, rows, columns]`; not to be written to.
        """
        factor = self.unit if self.formulas.additive and not self.weighted else 1.0
        values = self.evaluate(self.formulas.fields[number], rows, (columns,))
        return values if factor == 1.0 else values * factor

    def biased(self, scores: torch.Tensor, rows: Range, columns: Range) -> torch.Tensor:
        """The bias at `scores` `[batch, heads, rows, columns]`, a new contiguous tensor."""
        fields = [self.field(i, rows, columns) for i in range(len(self.formulas.fields))]
        environment = Environment(self.indices, (*self.values, *fields), scores)
        result = evaluate(self.formulas.bias, environment).to(self.dtype)
        return (
            torch.empty_like(scores).copy_(result)
            if result is scores
            else result.expand(scores.shape).contiguous()
        )

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """`power(scores)`, for scores relative to the row's largest or to its lse.

        With a bias, which may spread scores widely, weights under 2^-100 become 0: products of
        subnormal numbers are three times slower.
        """
        weights = self.power(scores)
        return (
            F.threshold(weights, 2.0**-100, 0.0, inplace=True) if self.formulas.fields else weights
        )

    def power(self, scores: torch.Tensor) -> torch.Tensor:
        """e to the power of scores in their units, in place."""
        return scores.exp2_() if self.unit == LOG2E else scores.exp_()

    def evaluate(self, formula: Node, rows: Range, columns: tuple[Range, ...]) -> torch.Tensor:
        """A part of the bias without scores, over `rows` and the ranges of `columns` in a line.

        Entries of a table of another class are copied into a tensor, since the class decides what
        adding them to scores in place does: torch's `TwoTensor` adds twice.
        """
        found = evaluate(formula, self.environment(rows, columns))
        if type(found) in PLAIN:
            return found
        return torch.empty(found.shape, dtype=found.dtype).copy_(found)

    def environment(self, rows: Range, columns: tuple[Range, ...]) -> Environment:
        """The environment of a tile for the bias, in the precision of scores, unlike for masks."""
        double = self.dtype == torch.float64
        return Environment(self.at(rows, columns), self.values, double=double)

    def at(self, rows: Range, columns: tuple[Range, ...]) -> dict[str, torch.Tensor]:
        """The indices of a tile as `[batch, heads, rows, columns]` views."""
        ranges = [torch.arange(*part) for part in columns]
        keys = ranges[0] if len(ranges) == 1 else torch.cat(ranges)
        queries = torch.arange(*rows)
        return {
            **self.indices,
            "q_idx": queries.view(1, 1, -1, 1),
            "kv_idx": keys.view(1, 1, 1, -1),
        }

    def _ceiling(self, rows: Range, masked: tuple[Range, ...]) -> torch.Tensor:
        """+inf where the mask keeps a pair, -inf where it drops it."""
        return self._kept(rows, masked).sub_(0.5).mul_(float("inf"))

    def _kept(self, rows: Range, masked: tuple[Range, ...]) -> torch.Tensor:
        """1 where the mask keeps a pair, 0 where it drops it."""
        environment = Environment(self.at(rows, masked), self.values)
        kept = evaluate(self.formulas.mask, environment)
        width = sum(end - first for first, end in masked)
        kept = kept.expand(*(kept.shape[:-1] or (1, 1, 1)), width)
        return kept.to(self.dtype)


def _beside(
    whole: torch.Tensor, first: int, packed: torch.Tensor, masked: tuple[Range, ...]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The columns of each masked range: of `whole`, from key `first` on, and of `packed`, which
    has these columns alone."""
    at = 0
    for left, end in masked:
        yield whole[..., left - first : end - first], packed[..., at : at + end - left]
        at += end - left


def has_nan(tensor: torch.Tensor) -> bool:
    """Whether an entry is NaN, or infinities cancel: one sum, since a bias may produce either.

    If so, dropped pairs are cleaned by code that takes twenty times as long.
    """
    return bool(tensor.sum().isnan())
