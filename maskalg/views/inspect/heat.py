"""The values of a bias, at a size that fits a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ...engine.evaluate import Environment, evaluate
from ...engine.extents import Lengths, resolve
from ...engine.normal_form import bound
from ...formula.expression import Expression
from ...formula.nodes import is_additive
from ...formula.separation import positions
from ...schedule.tile_runs import EMPTY
from .choice import Choice, one_entry
from .picture import FIRST, Cells, Picture, fitting_block


@dataclass(frozen=True, eq=False)
class Heat(Cells):
    """Values of a bias, float64 `[rows, columns]`: each at the first element of a block.

    NaN marks values that are not finite, and blocks of which the mask keeps nothing.
    """

    values: torch.Tensor

    @property
    def largest(self) -> float:
        """The largest absolute value, 0 where there is none."""
        found = self.values[self.values.isfinite()].abs()
        return float(found.max()) if len(found) else 0.0

    def where_kept(self, shown: Picture) -> Heat:
        """The same, with NaN in blocks that are empty in a picture of the same size."""
        values = self.values.masked_fill(shown.labels == EMPTY, torch.nan)
        return replace(self, values=values)


def heat(
    expression: Expression,
    q_len: int,
    kv_len: int | None,
    *,
    cells: int,
    block: int | None = None,
    choice: Choice = FIRST,
) -> Heat:
    """The values of a bias, or of the bias of a score, at most `cells` a side.

    Values are the numbers added to a score, or, if the bias is not a sum, the results for a score
    of 1.
    """
    title, notes = str(expression), choice.notes(expression)
    form = bound(one_entry(expression, choice).to("cpu"))
    extents = resolve(form, Lengths(q_len, kv_len))
    block = fitting_block(extents.q_len, extents.kv_len, cells, block)
    adds = is_additive(expression.bias_node)
    if not adds:
        notes = ("what a score of 1 becomes", *notes)
    if block > 1:
        notes = (f"the value at the first element of each block of {block} x {block}", *notes)
    indices = {
        "batch": torch.tensor(0),
        "head": torch.tensor(0),
        "q_idx": torch.arange(0, extents.q_len, block)[:, None],
        "kv_idx": torch.arange(0, extents.kv_len, block)[None, :],
    }
    score = torch.tensor(0.0 if adds else 1.0, dtype=torch.float64)
    values = evaluate(form.structure.bias, Environment(indices, form.values, score, double=True))
    shape = (len(indices["q_idx"]), indices["kv_idx"].shape[1])
    values = values.detach().double().expand(shape).clone()
    values[~values.isfinite()] = torch.nan
    return Heat(title, block, extents.q_len, extents.kv_len, notes, values)


def is_curve(expression: Expression) -> bool:
    """Whether an expression is a bias that is the same for every query and key."""
    return expression.kind == "bias" and not positions(expression.bias_node)
