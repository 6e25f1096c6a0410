"""Closed forms with values put in: for each tile of queries, intervals of keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from ...engine.evaluate import Environment, evaluate, narrowed
from ...engine.extents import Extents
from ...engine.memory import constant
from ...formula import nodes
from ...formula.nodes import Node
from ...proof.closed_forms import Residue, Span
from ..positions.sets import PositionSet, ends, position_set
from ..tiling import Tiling
from .steps import read_step


@dataclass(frozen=True)
class Rows:
    """Tiles of queries to compute intervals for; tensors broadcast as `[batch, heads, rows]`."""

    environment: Environment
    extents: Extents

    @property
    def q0(self) -> torch.Tensor:
        return self.environment.indices["q0"]

    @property
    def q1(self) -> torch.Tensor:
        return self.environment.indices["q1"]

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers of queries and of keys."""
        return self.extents.q_len, self.extents.kv_len

    def part(self, begin: int, end: int) -> Rows:
        """The tiles `begin <= tile < end` alone."""
        indices = dict(self.environment.indices)
        for name in ("q0", "q1"):
            indices[name] = indices[name][..., begin:end]
        return Rows(replace(self.environment, indices=indices), self.extents)


@dataclass(frozen=True)
class KeyRange:
    """Keys `low..high`, both included, int64 `[batch, heads, rows]`; empty if low > high."""

    low: torch.Tensor
    high: torch.Tensor
    span: Span

    def tiles(self, block_kv: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first tile of keys and one past the last; equal if the range is empty."""
        some = self.low <= self.high
        zero = torch.zeros_like(self.low)
        return (
            torch.where(some, self.low // block_kv, zero),
            torch.where(some, self.high // block_kv + 1, zero),
        )


def rows_of(tiling: Tiling) -> Rows:
    """All tiles of queries of a call, for the batch entries and heads that the mask depends on."""
    extents, device = tiling.extents, tiling.device
    block_q, sizes = tiling.block[0], tiling.shape[:2]

    def of_tiles() -> tuple[torch.Tensor, ...]:
        first = torch.arange(0, extents.q_len, block_q, device=device)
        last = (first + block_q - 1).clamp(max=extents.q_len - 1)
        batch, head = (torch.arange(size, device=device) for size in sizes)
        return first.view(1, 1, -1), last.view(1, 1, -1), batch.view(-1, 1, 1), head.view(1, -1, 1)

    found = constant(("rows", extents.q_len, block_q, sizes), device, of_tiles)
    indices = dict(zip(("q0", "q1", "batch", "head"), found, strict=True))
    lengths = (extents.q_len, extents.kv_len)

    def step(node: Node, at: list[torch.Tensor], env: Environment) -> torch.Tensor:
        if node.op == "step":
            return read_step(node, env.values, at)
        members = position_set(node.args[0], "q_idx", lengths, env)
        row = (at[0], at[1])
        if node.data == "next":
            return members.first_from(row, at[2])
        return members.last_until(row, at[2])

    return Rows(Environment(indices, tiling.form.values, step=step), extents)


def key_range(span: Span, rows: Rows) -> KeyRange:
    """The keys of a span for each tile of queries, cut to the existing keys."""
    env = rows.environment
    shape = np.broadcast_shapes(*[index.shape for index in env.indices.values()])
    low = torch.zeros((), dtype=torch.int64, device=env.device)
    high = torch.full_like(low, rows.extents.kv_len - 1)
    low, high = narrowed(low, high, span.lows, span.highs, partial(evaluate, env=env))
    for guard in span.guards:
        high = torch.where(evaluate(nodes.ge(guard, nodes.const(0)), env), high, -1)
    low, high = low.expand(shape), high.expand(shape)
    if span.keys is not None and not span.lows and not span.highs:
        first, last = ends(span.keys, "kv_idx", rows.lengths, env)
        low, high = torch.maximum(low, first), torch.minimum(high, last)
    elif (keys := key_set(span, rows)) is not None:
        at = (env.indices["batch"], env.indices["head"])
        low, high = keys.first_from(at, low), keys.last_until(at, high)
    return KeyRange(low, high, span)


def key_set(span: Span, rows: Rows) -> PositionSet | None:
    """The keys that satisfy the span's condition on the key alone; None without one."""
    if span.keys is None:
        return None
    return position_set(span.keys, "kv_idx", rows.lengths, rows.environment)


def span_tiles(span: Span, rows: Rows, block_kv: int) -> torch.Tensor:
    """The tiles that hold a key of a span, `[batch, heads, rows, columns]`."""
    found = key_range(span, rows)
    first, end = found.tiles(block_kv)
    columns = -(-rows.extents.kv_len // block_kv)
    column = torch.arange(columns, device=rows.environment.device)
    tiles = (column >= first[..., None]) & (column < end[..., None])
    keys = key_set(span, rows)
    if keys is not None:
        # The first and the last tile hold a member, so only tiles between them can hold none.
        starts = torch.arange(columns + 1, device=column.device) * block_kv
        counts = keys.counts[..., starts.clamp(max=keys.length)]
        tiles = tiles & (counts[..., 1:] > counts[..., :-1])[:, :, None]
    if span.residue is not None:
        tiles = tiles & residue_tiles(span.residue, rows, block_kv)
    return tiles


def residue_tiles(residue: Residue, rows: Rows, block_kv: int) -> torch.Tensor:
    """Which tiles hold a pair with the residue, `[batch, heads, rows, columns]`; exact."""
    env = rows.environment
    columns = -(-rows.extents.kv_len // block_kv)
    k_first = torch.arange(columns, device=env.device) * block_kv
    k_last = (k_first + block_kv - 1).clamp(max=rows.extents.kv_len - 1)

    def value(node: Node) -> torch.Tensor:
        return evaluate(node, env)[..., None]

    ends = (rows.q0[..., None], rows.q1[..., None])
    q_low, q_high = narrowed(*ends, residue.q_lows, residue.q_highs, value)
    k_low, k_high = narrowed(k_first, k_last, residue.k_lows, residue.k_highs, value)
    ends = (q_low - k_high, q_high - k_low)
    low, high = narrowed(*ends, residue.d_lows, residue.d_highs, value)
    some = (q_low <= q_high) & (k_low <= k_high) & (low <= high)
    unmoved = nodes.mod(nodes.subtract(residue.residue, residue.offset), residue.modulus)
    some, low, high, modulus, wanted = torch.broadcast_tensors(
        some, low, high, value(residue.modulus), value(unmoved)
    )
    # Enough distances in a row have the residue, or another one.
    enough = high - low >= modulus - 1 if residue.holds else (low < high) & (modulus > 1)
    found: torch.Tensor = some & enough
    few = (some & ~enough).nonzero(as_tuple=True)
    if len(few[0]):
        low, high, modulus, wanted = (each[few] for each in (low, high, modulus, wanted))
        # The first distance >= low with it; the subtracted number is in 0..modulus - 1.
        first = low + torch.remainder(wanted - torch.remainder(low, modulus), modulus)
        found[few] = first <= high if residue.holds else first != low
    return found
