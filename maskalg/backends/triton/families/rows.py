"""What the gradients need of each query: its lse, or the sum of its weights, and dO . O."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from maskalg_kernels.gradient_rows import gradient_rows

from ...call import Call
from ...results import in_order_of, row_steps
from ..launching.launch import Launch, Sizes, sized_now

_ROWS_OF_PROGRAM: Final = 64
_PADDED_BLOCK: Final = 256  # the kernels' PADDED_BLOCK
_SHIFT_COLUMNS: Final = 16  # the kernels' SHIFT_COLUMNS
_LOG2E: Final = math.log2(math.e)


@dataclass(frozen=True)
class Rows:
    """What the backward kernels know of each query.

    Attributes:
        out: of the forward pass, in the order of the query; None for weights that are not
            normalised, which do not need it.
        lse: float32 `[batch, heads, q_len]`, without a sink; of weights that have a formula their
            sum; None where `out` is.
        sinks: `[heads]`, or None.
        grad_lse: of the lse, or None.
        statistic, delta: float32 `[batch * heads * padded]`, filled by the kernel of dQ or one of
            their own, for the others: lse with the sink in units of log 2, or 1 / z; and what is
            subtracted from dO . v.
        padded: `q_len` in whole tiles.
    """

    out: torch.Tensor | None
    lse: torch.Tensor | None
    sinks: torch.Tensor | None
    grad_lse: torch.Tensor | None
    statistic: torch.Tensor
    delta: torch.Tensor
    padded: int

    def fill_with_nothing(self) -> None:
        """Where no query keeps anything."""
        self.statistic.fill_(math.inf)
        self.delta.zero_()


def padded_length(q_len: int) -> int:
    """A length in whole tiles."""
    return -(-q_len // _PADDED_BLOCK) * _PADDED_BLOCK


def rows_of(
    call: Call,
    saved: tuple[torch.Tensor, torch.Tensor],
    grad_lse: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> Rows:
    """What is known of each query of a call, its last part not filled yet.

    Args:
        saved: output and lse of the forward pass (the sum of weights that have a formula).
        grad_lse: of the lse, where it was returned.
        sinks: `[heads]`, or None.
    """
    lse = saved[1].contiguous()
    batch, heads, q_len = lse.shape
    padded = padded_length(q_len)
    known = (lse.new_empty(batch * heads * padded), lse.new_empty(batch * heads * padded))
    if call.weight.formula is not None and not call.weight.normalised:
        return Rows(None, None, None, None, *known, padded)
    if grad_lse is not None:
        grad_lse = grad_lse.float().contiguous()
    return Rows(in_order_of(call.query, saved[0]), lse, sinks, grad_lse, *known, padded)


def per_row_of(rows: Rows, *, of_queries: bool) -> tuple[torch.Tensor | None, ...]:
    """What the kernel of dQ is passed, which fills the last two, or that of dK and dV."""
    known = (rows.statistic, rows.delta)
    return (rows.out, rows.lse, rows.sinks, rows.grad_lse, *known) if of_queries else known


class OnePassRows(NamedTuple):
    """What the kernel of all gradients needs beside, to be filled.

    Attributes:
        shifts: what products of a query are shifted by, bfloat16 `[batch * heads * padded, 16]`.
        counters: of programs that added to a part of dQ, int32, two for each tile of queries.
        part_counters: of parts of a group of heads that added to 64 keys, int32; None without
            parts. No more than queries.
        block: queries of a tile.
    """

    shifts: torch.Tensor
    counters: torch.Tensor
    part_counters: torch.Tensor | None
    block: int

    @property
    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        return self.shifts, self.counters, self.part_counters


Counts = Callable[[Call], tuple[int, int]]
"""Queries of a tile of the kernel of all gradients, and counters of parts of a call."""


def one_pass_rows(call: Call, counts: Counts) -> OnePassRows:
    """New tensors, to be filled."""
    query, (block, parts) = call.query, counts(call)
    shifts, counters, *of_parts = _one_pass_shapes(call, block, parts)
    return OnePassRows(
        query.new_empty(shifts, dtype=torch.bfloat16),
        query.new_empty(counters, dtype=torch.int32),
        query.new_empty(of_parts[0], dtype=torch.int32) if of_parts else None,
        block,
    )


def _one_pass_shapes(call: Call, block: int, parts: int) -> tuple[tuple[int, ...], ...]:
    extents = call.extents
    heads = extents.batch * extents.heads
    shifts = (heads * padded_length(extents.q_len), _SHIFT_COLUMNS)
    counters = (heads * -(-extents.q_len // block) * 2,)
    return (shifts, counters, (parts,)) if parts else (shifts, counters)


def rows_launch(
    call: Call,
    rows: Rows,
    shape: dict[str, Any],
    grad_out: torch.Tensor,
    fixed: Hashable,
    more: OnePassRows | None = None,
    counts: Counts | None = None,
) -> Launch:
    """What fills statistic and delta, where no kernel of dQ does.

    Args:
        shape: constants that follow from shapes.
        fixed: what the constants follow from, and the device.
        more: filled too, or None.
        counts: of which `more` was made.
    """
    own = (None, None, None) if more is None else more.tensors
    sized = partial(_sizes, counts)
    constants = {
        "VALUE_DIM": shape["VALUE_DIM"],
        "VALUE_PAD": shape["VALUE_PAD"],
        "WEIGHTED": call.weight.formula is not None,
        "ROWS": _ROWS_OF_PROGRAM,
        "COUNTED": 0 if more is None else more.block,
    }
    return Launch(
        gradient_rows,
        ("rows", fixed, *constants.values()),
        [grad_out, *per_row_of(rows, of_queries=True), *own],
        sized_now(sized, call, (grad_out,)),
        lambda: constants,
        sized,
        strided=(grad_out,),
        made=tuple([tensor for tensor in own if tensor is not None]),
    )


def _sizes(counts: Counts | None, call: Call, strides: list[int]) -> Sizes:
    extents, padded = call.extents, padded_length(call.extents.q_len)
    block, parts = (0, 0) if counts is None else counts(call)
    return Sizes(
        padded // _ROWS_OF_PROGRAM * extents.batch * extents.heads,
        (
            parts, call.scale, extents.q_len, padded, extents.heads, *row_steps(call.query),
            *strides,
        ),
        (extents.heads, *strides),
        () if counts is None else _one_pass_shapes(call, block, parts),
    )  # fmt: skip


def sink_gradient(rows: Rows, sinks: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:
    """Of the logits `[heads]`: minus the weight of the sink times dO . O, over all queries."""
    assert rows.out is not None and rows.lse is not None
    batch, heads, q_len = rows.lse.shape
    known = (rows.statistic, rows.delta)
    statistic, product = [t.view(batch, heads, rows.padded)[..., :q_len] for t in known]
    if rows.grad_lse is not None:
        # What delta has beside it may be larger by any factor.
        product = (rows.out.float() * grad_out.float()).sum(-1)
    # Where nothing is kept the statistic is infinite, and the share of the sink 0; it is the whole
    # of an infinite sink, whose output is 0.
    logits = sinks.float()[:, None] * _LOG2E
    share = torch.where(logits == math.inf, 0.0, torch.exp2(logits - statistic))
    return -(share * product).sum(dim=(0, 2)).to(sinks.dtype)
