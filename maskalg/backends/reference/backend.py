"""The reference: attention by its definition, over the dense matrix of scores.

Everything else is tested against it. Memory grows with q_len * kv_len.
"""

from __future__ import annotations

import dataclasses
from typing import cast

import torch

from ...engine.evaluate import Environment, evaluate, grid
from ...engine.normal_form import Bound
from ..call import Call, Result
from ..cpu.formula import differentiated
from ..dropped import without_dropped
from ..results import in_order_of, with_sink
from ..traits import Explained

# The first call of a function in MKL, made by several threads at once, can return values of low
# precision (PyTorch issue 188792); one call by one thread beforehand settles it.
for _warm in (torch.zeros(1), torch.zeros(1, dtype=torch.float64)):
    torch.exp(_warm), torch.log(_warm + 1), torch.tanh(_warm)


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted.

    Computed in float32 (float64 for float64 inputs), differentiable by autograd. A query that
    keeps no key has output 0, lse -inf and gradients 0.
    """
    with torch.autocast(call.query.device.type, enabled=False):
        out, lse = _attend(without_dropped(call))
    return out.to(call.query.dtype), lse if call.return_lse else None


def compute(call: Call, lse_wanted: bool) -> Result:
    """Output and, where wanted, lse, without a record for autograd."""
    with torch.no_grad():
        out, lse = attend(call._replace(return_lse=lse_wanted))
        return in_order_of(call.query, out), lse


def differentiate(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> list[torch.Tensor]:
    """Gradients of query, key, value and the tables in these slots, by computing once more.

    If `saved` covers further keys, the keys of the call have a share exp(their lse - lse) of it.
    """
    values = list(call.form.values)
    wanted = [call.query, call.key, call.value]
    wanted += [cast(torch.Tensor, values[i]) for i in tables]
    wanted = [tensor.detach().requires_grad_() for tensor in wanted]
    for i, table in zip(tables, wanted[3:], strict=True):
        values[i] = table
    query, key, value = wanted[:3]
    form = Bound(call.form.structure, tuple(values))
    with_lse = call.weight.formula is None
    again = call._replace(query=query, key=key, value=value, form=form, return_lse=with_lse)
    with torch.enable_grad():
        results = [result for result in attend(again) if result is not None]
    of_results = [change[0]]
    if with_lse:
        out, lse = (result.detach() for result in results)
        some = lse != float("-inf")
        share = torch.where(some, torch.exp(torch.where(some, lse - saved[1], 0.0)), 0.0)
        apart = (change[0] * (out - saved[0])).sum(dim=-1, dtype=lse.dtype)
        of_lse = torch.where(some, apart, 0.0) + (0.0 if change[1] is None else change[1])
        of_results = [(share.unsqueeze(-1) * change[0]).to(out.dtype), share * of_lse]
    found = torch.autograd.grad(results, wanted, of_results, materialize_grads=True)
    inputs = zip((call.query, call.key, call.key), found[:3], strict=True)
    of_inputs = [in_order_of(like, gradient) for like, gradient in inputs]
    return [*of_inputs, *[gradient.contiguous() for gradient in found[3:]]]


def explain(call: Call) -> Explained:
    """Nothing is chosen."""
    return Explained("dense matrix of scores", bounds="none")


def _attend(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    query = call.query.to(dtype)
    key, value = (t.to(dtype).repeat_interleave(call.group, dim=1) for t in (call.key, call.value))
    keeps = kept(call)
    scores = _biased(call, torch.matmul(query, key.transpose(-1, -2)) * call.scale, keeps)
    if call.weight.formula is not None:
        return _weighted_rows(scores.masked_fill(~keeps, 0.0), value, call.weight.normalised)
    out, lse = _softmax_rows(scores.masked_fill(~keeps, float("-inf")), value)
    return with_sink(out, lse, call.weight.sink), lse


def _softmax_rows(scores: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax of scores (-inf where dropped) times value, and the lse of each row."""
    if scores.shape[-1] == 0:
        # Computed from the scores, so that its gradient is that of no keys.
        return torch.matmul(scores, value), scores.sum(dim=-1) - float("inf")
    highest = scores.detach().amax(dim=-1, keepdim=True)
    highest = torch.where(highest == float("-inf"), 0.0, highest)
    weights = torch.exp(scores - highest)
    total = weights.sum(dim=-1, keepdim=True)
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    lse = torch.where(empty, float("-inf"), highest + torch.log(total))
    return torch.matmul(weights / total, value), lse.squeeze(-1)


def _weighted_rows(
    weights: torch.Tensor, value: torch.Tensor, normalised: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (0 where dropped) times value; the sum of each row takes the place of lse."""
    total = weights.sum(dim=-1)
    if not normalised:
        return torch.matmul(weights, value), total
    divisor = torch.where(total == 0, 1.0, total).unsqueeze(-1)
    return torch.matmul(weights / divisor, value), total


def kept(call: Call) -> torch.Tensor:
    """The mask, broadcastable to `[batch, heads, q_len, kv_len]`."""
    return evaluate(call.form.structure.mask, _environment(call, None))


def _biased(call: Call, scores: torch.Tensor, keeps: torch.Tensor) -> torch.Tensor:
    """The scores after the bias of the expression, with gradients of kept pairs."""
    structure = call.form.structure
    if structure.bias.op == "score":
        return scores
    environment, tables = _environment(call, scores), list(call.form.values)
    learned = [slot.index for slot, table in call.form.tensors() if table.requires_grad]
    for slot in learned:  # their gradients are added up in the dtype of scores
        tables[slot] = cast(torch.Tensor, tables[slot]).to(scores.dtype)
    environment = dataclasses.replace(environment, values=tuple(tables))
    bias, readings = differentiated(structure, tuple(learned))
    entries = [evaluate(reading, environment) for reading in readings]
    values = (*environment.values, *entries)
    result = evaluate(bias, dataclasses.replace(environment, values=values, kept=keeps))
    return result.to(scores.dtype).expand_as(scores)


def _environment(call: Call, scores: torch.Tensor | None) -> Environment:
    extents = call.extents
    rows, columns = (0, extents.q_len), (0, extents.kv_len)
    indices = grid(extents.batch, extents.heads, rows, columns, call.query.device)
    return Environment(indices, call.form.values, scores)
