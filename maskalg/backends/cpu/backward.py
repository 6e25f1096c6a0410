"""The backward pass on a CPU: weights are computed again, one tile of queries after another.

With s the biased score of a kept pair, p = exp(s - lse), and delta = sum(dO * O) - dlse of a query,

    dV = p^T dO        ds = p * (dO V^T - delta)        dQ = (ds f') K        dK = (ds f')^T Q

where f' is the slope of the bias at the score, computed by autograd if the bias is not additive or
one of its tables needs a gradient. For weights w that have a formula, with z their sum (1, and no
delta, if they are not normalised),

    dV = w^T dO / z        ds = w' * (dO V^T - delta) / z

A large lse, such as that of a row whose bias is -1e9 everywhere, holds the sum of weights only
roughly. For such rows, the largest score and the sum are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, cast

import torch

from ...engine.evaluate import Environment, evaluate
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ..call import Call
from ..results import empty_gradients
from .elements import LOG2E, Elements, has_nan
from .formula import differentiated
from .forward import (
    Operands,
    accumulation,
    biased_scores,
    online_softmax,
    operands,
    piece_weights,
    score_factor,
)
from .plan import Group, Piece, Row, plan


@dataclass
class Gradients:
    """Gradients of the inputs, and of the bias tables that need one, by slot."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    tables: dict[int, torch.Tensor]


@dataclass
class _Saved:
    """Results of the forward pass for one group's rows, in the dtype of accumulation.

    Attributes:
        gradient: of the output, `[batch, heads, q_len, value_dim]`.
        lse2: lse in units of ln 2, +inf if no key is kept, `[batch, heads, q_len, 1]`; for weights
            that have a formula, the sum that their output was divided by, or 1.
        delta: `[batch, heads, q_len, 1]`.
        rounded: the output in 16 bits, if the lost bits matter: gradients of table entries are sums
            of ds over many pairs, whose terms cancel, while an error of delta stays.
    """

    gradient: torch.Tensor
    lse2: torch.Tensor
    delta: torch.Tensor
    rounded: torch.Tensor | None


def backward(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> Gradients:
    """Gradients in the dtype of accumulation, added up in one fixed order.

    Gradients of inputs have the layout of `empty_gradients`.

    Args:
        call: the inputs.
        saved: output and lse of the forward pass.
        change: gradients of the output and of the lse, None where that was not used.
        tables: slots of the bias that want a gradient.
    """
    dtype = accumulation(call.query.dtype)
    dq, dk, dv = empty_gradients(call.query, call.key, call.value, dtype)
    of_tables = {i: _zeros(_tensor(call, i), dtype) for i in tables}
    found = Gradients(dq.zero_(), dk.zero_(), dv.zero_(), of_tables)
    out, lse = saved
    if 0 in (*out.shape[:3], call.extents.kv_len):
        return found
    gradient = change[0].to(dtype)
    delta = (gradient * out.to(dtype)).sum(dim=-1, keepdim=True)
    if change[1] is not None:
        delta -= change[1].to(dtype).unsqueeze(-1)
    softmax = call.weight.formula is None
    if softmax:
        # +inf means that no key is kept, never that a large lse overflows.
        lse2 = (lse * LOG2E).clamp(max=torch.finfo(dtype).max)
        lse2 = torch.where(lse == float("-inf"), float("inf"), lse2).unsqueeze(-1)
    else:
        normalised = call.weight.normalised
        lse2 = torch.where((lse == 0) | (not normalised), 1.0, lse).unsqueeze(-1)
        gradient = gradient / lse2
        delta = delta / lse2 if normalised else delta.zero_()
    scratch = torch.empty(0, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for group in plan(call.form, call.extents):
            members = group.members
            # An output over further keys differs by more than the bits it lost.
            summed = softmax or call.weight.normalised  # else there is no delta
            lossy = tables and summed and dtype != out.dtype and not call.part
            rounded = out.to(dtype)[members] if lossy else None
            tile = _Saved(gradient[members], lse2[members], delta[members], rounded)
            _Group(call, group, tile, Elements(call, group, dtype), scratch, found).add()
    return found


class _Group:
    """The batch entries and heads with the same visits; adds their part to the gradients."""

    def __init__(
        self,
        call: Call,
        group: Group,
        saved: _Saved,
        elements: Elements,
        scratch: torch.Tensor,
        found: Gradients,
    ) -> None:
        self.call, self.group, self.saved = call, group, saved
        self.elements, self.scratch, self.found = elements, scratch, found
        self.inputs: Operands = operands(call, group)
        self.key = torch.zeros_like(self.inputs.key)
        self.value = torch.zeros_like(self.inputs.value)
        bias, readings = differentiated(call.form.structure, tuple(found.tables))
        self.bias: Node = bias
        self.readings: tuple[Node, ...] = readings

    def add(self) -> None:
        (batch, members), heads = self.group.members, self.group.heads
        for row in self.group.rows:
            if row.pieces:
                change = self.inputs.spread(self._row(row), row)
                self.found.query[batch, members, slice(*row.rows)] = change
        for mine, theirs in ((self.key, self.found.key), (self.value, self.found.value)):
            part = mine.view(batch.stop - batch.start, -1, *mine.shape[1:])
            if heads is None:
                theirs[batch] += part
            else:
                of_heads = torch.tensor(heads) // self.call.group
                theirs[batch] = theirs[batch].index_add(1, of_heads, part)

    def _row(self, row: Row) -> torch.Tensor:
        """The gradient of a tile of queries; adds those of its keys and values."""
        inputs, saved = self.inputs, self.saved
        plain = inputs.tile(inputs.query, row)
        gradient, lse2, delta = (
            inputs.tile(t, row) for t in (saved.gradient, saved.lse2, saved.delta)
        )
        elements = self.elements
        shift: tuple[torch.Tensor, ...] = (lse2,)
        most = _MOST_OF_TABLES if self.found.tables else _MOST
        # Of a part, the keys that the sum needs are elsewhere.
        summable = self.call.weight.formula is None and not self.call.part
        if summable and _is_rough(lse2, most):
            elements = elements.in_natural_units()
            m, sums, _ = online_softmax(self.call, inputs, elements, row, self.scratch)
            # Both parts of lse: the largest score, and the log of the sum relative to it.
            shift = m, torch.where(sums == 0, float("inf"), sums.log())
        query = plain * score_factor(self.call, elements)
        if saved.rounded is not None:
            whole = torch.zeros_like(gradient)
            for piece in row.pieces:
                weights = self._weights(elements, query, plain, row, piece, shift)
                whole.baddbmm_(weights, inputs.value[:, slice(*piece.columns)])
            if self.call.weight.formula is not None:
                whole.div_(lse2)
            lost = whole.sub_(inputs.tile(saved.rounded, row)).mul_(gradient)
            delta = delta + lost.sum(dim=-1, keepdim=True)
        total = torch.zeros_like(query)
        for piece in row.pieces:
            columns = slice(*piece.columns)
            weights = self._weights(elements, query, plain, row, piece, shift)
            self.value[:, columns].baddbmm_(weights.transpose(1, 2), gradient)
            change = torch.bmm(gradient, inputs.value[:, columns].transpose(1, 2)).sub_(delta)
            if self.call.weight.formula is None:
                change.mul_(weights)
            else:
                spread = inputs.spread(change, row)
                self.elements.keep(spread, row.rows, piece.columns[0], piece.masked)
            change = self._through_bias(change, plain, row, piece).mul_(self.call.scale)
            self.key[:, columns].baddbmm_(change.transpose(1, 2), plain)
            total.baddbmm_(change, inputs.key[:, columns])
        return total

    def _weights(
        self,
        elements: Elements,
        query: torch.Tensor,
        plain: torch.Tensor,
        row: Row,
        piece: Piece,
        shift: tuple[torch.Tensor, ...],
    ) -> torch.Tensor:
        """The weights of a piece: those of a softmax, from scores less all parts of their lse, in
        the scratch, or those of a formula."""
        if self.call.weight.formula is not None:
            return piece_weights(self.call, self.inputs, elements, plain, row, piece, self.scratch)
        scores = biased_scores(self.inputs, elements, query, row, piece.columns, self.scratch)
        elements.mask(self.inputs.spread(scores, row), row.rows, piece.columns[0], piece.masked)
        for part in shift:
            scores.sub_(part)
        return elements.weights(scores)

    def _through_bias(
        self, change: torch.Tensor, plain: torch.Tensor, row: Row, piece: Piece
    ) -> torch.Tensor:
        """The gradient of plain scores from that of biased ones; adds those of tables."""
        if self.elements.formulas.additive and not self.readings:
            return change
        columns = slice(*piece.columns)
        scores = torch.bmm(plain, self.inputs.key[:, columns].transpose(1, 2))
        scores = self.inputs.spread(scores.mul_(self.call.scale), row).requires_grad_()
        environment = self.elements.environment(row.rows, (piece.columns,))
        entries = [evaluate(r, environment).detach().requires_grad_() for r in self.readings]
        wanted = self.inputs.spread(change, row)
        got = self._slopes(environment, scores, entries, wanted, None)
        if any(part is not None and has_nan(part) for part in got):
            every = torch.ones((), dtype=torch.bool)
            kept = self.elements.kept(row.rows, piece) if piece.masked else every
            got = self._slopes(environment, scores, entries, wanted, kept)
        for reading, part in zip(self.readings, got[1:], strict=True):
            if part is not None:
                self._add_to_table(reading, part, environment)
        return change.zero_() if got[0] is None else got[0].reshape(change.shape)

    def _slopes(
        self,
        environment: Environment,
        scores: torch.Tensor,
        entries: list[torch.Tensor],
        wanted: torch.Tensor,
        kept: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, ...]:
        """`wanted` times the slope of the bias, at scores and at entries of tables.

        Args:
            kept: the pairs to take gradients of; None for all, which is faster.
        """
        inputs = [scores, *entries]
        with torch.enable_grad():
            values = (*environment.values, *entries)
            of_piece = replace(environment, values=values, score=scores, kept=kept)
            biased = evaluate(self.bias, of_piece).expand_as(scores)
        if not biased.requires_grad:
            return (None,) * len(inputs)
        return torch.autograd.grad(biased, inputs, wanted, allow_unused=True)

    def _add_to_table(self, reading: Node, part: torch.Tensor, env: Environment) -> None:
        """Add the gradient of a read to that of its table, entry by entry."""
        table = self.found.tables[cast(Slot, reading.own[0]).index]
        place: torch.Tensor = torch.zeros((), dtype=torch.int64)
        for axis, index in enumerate(reading.args):
            entry = evaluate(index, env).clamp(0, table.shape[axis] - 1)
            place = place * table.shape[axis] + entry
        table.view(-1).index_add_(0, place.expand(part.shape).reshape(-1), part.reshape(-1))


_MOST: Final = 2.0**-13  # error of weights, relative, in gradients of inputs
_MOST_OF_TABLES: Final = 2.0**-18  # likewise of tables: sums of terms that cancel


def _is_rough(lse2: torch.Tensor, most: float) -> bool:
    """Whether some row's weights relative to lse would have a relative error above `most`.

    Args:
        lse2: in units of ln 2, -inf where it overflows, +inf where nothing is kept.
        most: the largest error that does not matter.
    """
    large = lse2.abs() * torch.finfo(lse2.dtype).eps > most
    return bool((large & (lse2 != float("inf"))).any())


def _tensor(call: Call, slot: int) -> torch.Tensor:
    return cast(torch.Tensor, call.form.values[slot])


def _zeros(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros_like(tensor, dtype=dtype, memory_format=torch.contiguous_format)
