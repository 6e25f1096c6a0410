"""The CPU backend: attention of tiles of queries to the pieces of keys in the schedule.

Empty tiles are not visited and full ones not masked. Scores exist for one tile at a time, forward
and backward, so memory is linear in the lengths: inputs, outputs, float32 copies of keys and values
in half precision, and at most some tens of MiB.
"""

from __future__ import annotations

from typing import cast

import torch

from ...formula.watched import on_host
from ..call import Call, Result, recorded
from ..dropped import without_dropped
from ..results import with_sink
from ..traits import Explained
from .native import launch

# The first call of a function in MKL, made by several threads at once, can return values of low
# precision (PyTorch issue 188792); one call by one thread beforehand settles it.
for _warm in (torch.ones(1), torch.ones(1, dtype=torch.float64)):
    torch.exp2(_warm), torch.log2(_warm), torch.tanh(_warm)


def attend(call: Call) -> Result:
    """Output `[batch, heads, q_len, value_dim]`, and lse `[batch, heads, q_len]` when wanted.

    Accumulated in float32 (float64 for float64 inputs), which is also the dtype of lse. Gradients
    go to query, key, value and floating-point tables of the bias, and come through lse too; the
    same inputs give the same bits.
    """
    if call.differentiable():
        out, lse = recorded(call, None, compute, _gradients)
    else:
        out, lse = _forward(call, call.return_lse or call.weight.sink is not None)
    return with_sink(out, lse, call.weight.sink), lse if call.return_lse else None


def compute(call: Call, lse_wanted: bool) -> Result:
    """Output without a sink and, where wanted, lse; see `attend`."""
    out, lse = _forward(call, lse_wanted)
    return out, lse if lse_wanted else None


def differentiate(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
) -> list[torch.Tensor]:
    """Gradients of query, key, value and the tables in these slots, in their dtypes."""
    with on_host():
        kernel = launch.kernel_for(call, tables=bool(tables))
        given = [part for part in (*saved, *change) if part is not None]
        if kernel is not None and all(map(launch.in_memory, given)):
            return launch.backward(call, kernel, saved, change)
        from .backward import backward

        found = backward(without_dropped(call), saved, change, tables)
        inputs = zip(
            (found.query, found.key, found.value), (call.query, call.key, call.value), strict=True
        )
        of_tables = [
            found.tables[i].to(cast(torch.Tensor, call.form.values[i]).dtype) for i in tables
        ]
        return [*(gradient.to(tensor.dtype) for gradient, tensor in inputs), *of_tables]


def _forward(call: Call, lse_wanted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Output without a sink, and lse, which is not written unless wanted."""
    with on_host():
        kernel = launch.kernel_for(call)
        if kernel is None:  # import the code for torch's operations only if needed
            from .forward import forward

            return forward(without_dropped(call))
        return launch.forward(call, kernel, lse_wanted)


def explain(call: Call) -> Explained:
    """A kernel of the expression if it can compute the call, else torch's operations."""
    if launch.renders(call):
        return Explained("one kernel compiled from the expression")
    return Explained("tiles by torch's operations")


def _gradients(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    change: tuple[torch.Tensor, torch.Tensor | None],
    tables: tuple[int, ...],
    _sink: torch.Tensor | None,
    *,
    inputs: bool,
) -> list[torch.Tensor | None]:
    """Gradients for `recorded`, which sees no sink."""
    of_inputs = differentiate(call, saved, change, tables)
    return [*of_inputs[:3], None, *of_inputs[3:]]
