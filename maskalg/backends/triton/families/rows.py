"""Row statistics of the gradients: lse, or the sum of weights, and dO . O of each query."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch

from ...call import Call
from ...results import in_order_of
from ..arguments import numbers_of, padded_length
from ..launching.launch import Launch
from ..launching.spec import KernelSpec, Sizes
from ..plan import BackwardPlan

_ROWS: Final = KernelSpec("maskalg_kernels.gradient_rows.gradient_rows")

_ROWS_OF_PROGRAM: Final = 64
_SHIFT_COLUMNS: Final = 16  # the kernels' SHIFT_COLUMNS
_LOG2E: Final = math.log2(math.e)


class Rows(NamedTuple):
    """Row statistics the backward kernels read, by the names of their arguments.

    Attributes:
        o: the output of the forward pass, in the order of the query; None for weights that are
            not normalised, which do not need it.
        lse: float32 `[batch, heads, q_len]`, without a sink; for weights that have a formula, their
            sum; None if `o` is.
        sink: `[heads]`, or None.
        grad_lse: the gradient of the lse, or None.
        statistic, delta: float32 `[batch * heads * padded]`, filled by the kernel of dQ or by one
            of their own, and read by the other kernels. `statistic` is lse with the sink in units
            of log 2, or 1 / z; `delta` is subtracted from dO . v.
    """

    o: torch.Tensor | None
    lse: torch.Tensor | None
    sink: torch.Tensor | None
    grad_lse: torch.Tensor | None
    statistic: torch.Tensor
    delta: torch.Tensor

    def fill_with_nothing(self) -> None:
        """Fill the statistics for queries that keep no key."""
        self.statistic.fill_(math.inf)
        self.delta.zero_()


Known = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
"""`Rows.o`, `lse`, `sink` and `grad_lse`."""


def known_of(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    grad_lse: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> Known:
    """The tensors from which the row statistics are computed.

    Args:
        saved: output and lse of the forward pass (the sum of weights that have a formula). An
            output in the call's room is read there.
        grad_lse: the gradient of the lse, if it was returned.
        sinks: `[heads]`, or None.
    """
    if call.weight.formula is not None and not call.weight.normalised:
        return None, None, None, None
    if grad_lse is not None:
        grad_lse = grad_lse.float().contiguous()
    out = saved[0] if call.room(0) is not None else in_order_of(call.query, saved[0])
    return out, saved[1].contiguous(), sinks, grad_lse


def empty_statistics(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """New tensors for `Rows.statistic` and `delta`."""
    batch, heads, q_len, _ = query.shape
    size = batch * heads * padded_length(q_len)
    statistic, delta = (query.new_empty(size, dtype=torch.float32) for _ in range(2))
    return statistic, delta


def rows_of(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    grad_lse: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> Rows:
    """The row statistics of a call, not filled yet; arguments as for `known_of`."""
    known = known_of(call, saved, grad_lse, sinks)
    return Rows(*known, *empty_statistics(call.query))


Counts = Callable[[Call], tuple[int, int]]
"""Queries of a tile of the kernel of all gradients, and counters of its parts of a call."""


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """The inputs of a backward pass.

    Attributes:
        call: the inputs, without gradients.
        plan: of the structure.
        tma: whether the device copies tiles by descriptor.
        rows: the row statistics.
        grad_out: the gradient of the output.
    """

    call: Call
    plan: BackwardPlan
    tma: bool
    rows: Rows
    grad_out: torch.Tensor

    @property
    def tensors(self) -> dict[str, Any]:
        """By the names of the kernels' arguments."""
        call = self.call
        inputs = {"q": call.query, "k": call.key, "v": call.value, "g": self.grad_out}
        return inputs | self.rows._asdict()


def rows_launch(of: BackwardPass, fixed: Hashable, counts: Counts | None = None) -> Launch:
    """The launch that fills `statistic` and `delta`, if no kernel of dQ does.

    With `counts` it makes further tensors for the kernel of all gradients:

        shift: the shifts of a query's products, bfloat16 `[batch * heads * padded, 16]`;
        counter: counts programs that added to a part of dQ, int32, two for each tile of queries;
        part_counter: counts heads of a group that added to 64 keys, int32, no more than queries;
            None without parts.

    Args:
        fixed: the key of the constants, and the device.
        counts: the counts of the kernel of all gradients, None if it is not launched.
    """
    constants = of.plan.shape | {
        "WEIGHTED": of.call.weight.formula is not None,
        "ROWS": _ROWS_OF_PROGRAM,
        "COUNTED": 0 if counts is None else counts(of.call)[0],
    }
    given = of.tensors | dict.fromkeys(("shift", "counter", "part_counter"))
    key = (fixed, constants["COUNTED"])
    return Launch(_ROWS, key, of.call, given, partial(_sizes, counts), lambda: constants)


def _sizes(counts: Counts | None, call: Call) -> Sizes:
    extents = call.extents
    heads, padded = extents.batch * extents.heads, padded_length(extents.q_len)
    made: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    parts = 0
    if counts is not None:
        block, parts = counts(call)
        tiles = -(-extents.q_len // block)
        made["shift"] = ((heads * padded, _SHIFT_COLUMNS), torch.bfloat16)
        made["counter"] = ((heads * tiles * 2,), torch.int32)
        if parts:
            made["part_counter"] = ((parts,), torch.int32)
    head_step, row_step = call.row_steps(0)
    own = {"part_counters": parts, "head_step": head_step, "row_step": row_step}
    return Sizes(padded // _ROWS_OF_PROGRAM * heads, {**numbers_of(call), **own}, made)


def sink_gradient(rows: Rows, sinks: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:
    """The gradient of the logits `[heads]`: minus the sums of sink weight times dO . O."""
    assert rows.o is not None and rows.lse is not None
    batch, heads, q_len = rows.lse.shape
    known = (rows.statistic, rows.delta)
    statistic, product = [t.view(batch, heads, -1)[..., :q_len] for t in known]
    if rows.grad_lse is not None:
        # The other term of delta may be larger by any factor.
        product = (rows.o.float() * grad_out.float()).sum(-1)
    # Where nothing is kept the statistic is infinite, and the share of the sink 0; it is the whole
    # of an infinite sink, whose output is 0.
    logits = sinks.float()[:, None] * _LOG2E
    share = torch.where(logits == math.inf, 0.0, torch.exp2(logits - statistic))
    return -(share * product).sum(dim=(0, 2)).to(sinks.dtype)
