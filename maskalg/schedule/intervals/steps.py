"""Monotone tables of packed documents: one pass over the ids, on their device, without waiting.

For queries x and keys y that are kept when their ids are equal:

- `first[x]`: the first key that a query >= x may keep;   `last[x]`: the last one for queries <= x;
- `start[x]`, `end[x]`: keys that x surely keeps, narrowed so that both are monotone in x.

All four are non-decreasing. Where equal ids are contiguous, `first = start` and `last = end`, and
the closed forms built on them are exact; elsewhere they stay sound, whatever the ids are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, cast

import torch

from ...engine.normal_form import Value
from ...formula.entries import readable
from ...formula.nodes import Node
from ...formula.parameters import Slot
from ..memory import Memory

_TABLES: Final = Memory(1024)


@dataclass(frozen=True)
class StepTables:
    """The tables of one pair of id tensors, int32 `[length]` or `[batch, length]` each."""

    first: torch.Tensor
    last: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    kv_length: int
    _derived: dict[str, torch.Tensor] = field(default_factory=dict, repr=False, compare=False)

    def named(self, name: str) -> torch.Tensor:
        """A table by the name closed forms use; a prime is the inverse, from keys to queries.

        "contiguous" is one number, not 0 where the tables are exact. What is derived from the four
        tables is computed once.
        """
        if name != "contiguous" and not name.endswith("'"):
            return cast(torch.Tensor, getattr(self, name))
        found = self._derived.get(name)
        if found is None:
            found = self._derived[name] = self._derive(name)
        return found

    def _derive(self, name: str) -> torch.Tensor:
        if name == "contiguous":
            same = (self.first == self.start).logical_and_(self.last == self.end)
            return same.all().to(torch.int32)
        keys = torch.arange(self.kv_length, device=self.first.device, dtype=torch.int32)
        if name in ("first'", "start'"):
            forward = self.last if name == "first'" else self.end
            return _search(forward, keys, right=False)
        forward = self.first if name == "last'" else self.start
        return _search(forward, keys, right=True) - 1

    def contiguous(self) -> bool:
        """Whether the tables are exact. Waits for the device."""
        return bool(self.named("contiguous"))


def step_tables(q_ids: torch.Tensor, kv_ids: torch.Tensor) -> StepTables:
    """The tables of a pair of id tensors, remembered while the tensors live unchanged."""
    pair = (q_ids,) if q_ids is kv_ids else (q_ids, kv_ids)
    return _TABLES.of_tensors((), pair, lambda: _step_tables(q_ids, kv_ids))


def step_slots(node: Node) -> tuple[Slot, Slot]:
    """The slots of the query ids and of the key ids a `step` node reads."""
    q_slot, kv_slot = node.own
    return cast(Slot, q_slot), cast(Slot, kv_slot)


def tables_of(node: Node, values: tuple[Value, ...]) -> StepTables:
    """The step tables a `step` node reads, built from the bound ids."""
    q_slot, kv_slot = step_slots(node)
    q_ids, kv_ids = values[q_slot.index], values[kv_slot.index]
    return step_tables(cast(torch.Tensor, q_ids), cast(torch.Tensor, kv_ids))


def read_step(node: Node, values: tuple[Value, ...], indices: list[torch.Tensor]) -> torch.Tensor:
    """The entries of a step table at `indices` (batch, if it has one, and position)."""
    table = tables_of(node, values).named(cast(str, node.data))
    if not indices:
        return table
    if table.ndim > len(indices):
        table = table[0] if table.shape[0] == 1 else table
    position = indices[-1].clamp(0, max(table.shape[-1] - 1, 0))
    if table.ndim == 1:
        return table[position].to(torch.int64)
    return table[indices[0].clamp(0, table.shape[0] - 1), position].to(torch.int64)


def _step_tables(q_ids: torch.Tensor, kv_ids: torch.Tensor) -> StepTables:
    if q_ids is kv_ids and _is_sorted(q_ids):
        return _tables_in_order(q_ids)
    if q_ids is kv_ids:
        first, last = _occurrences_of_own(q_ids)
        start, end = _runs(q_ids)
    else:
        first, last, start, end = _occurrences_in_other(q_ids, kv_ids)
        if q_ids.ndim == kv_ids.ndim == 1:
            first, last, start, end = first[0], last[0], start[0], end[0]
    return StepTables(
        first=_running_min_from_right(first).to(torch.int32),
        last=_running_max(last).to(torch.int32),
        start=_running_max(start).to(torch.int32),
        end=_running_min_from_right(end).to(torch.int32),
        kv_length=kv_ids.shape[-1],
    )


def _is_sorted(ids: torch.Tensor) -> bool:
    """Whether one row of ids is known to be sorted, so that equal ids are contiguous.

    On the CPU a look is cheaper than sorting; on a GPU it would wait for the device, and where
    somebody watches (fake tensors, torch.func) there may be no values to look at.
    """
    return ids.ndim == 1 and readable(ids) and bool((ids[1:] >= ids[:-1]).all())


def _tables_in_order(ids: torch.Tensor) -> StepTables:
    """The tables of one row of sorted ids."""
    counts = ids.unique_consecutive(return_counts=True)[1]
    past = counts.cumsum(0)
    start = (past - counts).to(torch.int32).repeat_interleave(counts)
    end = (past - 1).to(torch.int32).repeat_interleave(counts)
    return StepTables(start, end, start, end, len(ids))


def _occurrences_of_own(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each position, the first and the last position with the same id."""
    values, order = ids.sort(dim=-1, stable=True)
    group_start, group_end = _runs(values)
    first = order.gather(-1, group_start)
    last = order.gather(-1, group_end)
    return torch.empty_like(first).scatter_(-1, order, first), torch.empty_like(last).scatter_(
        -1, order, last
    )


def _occurrences_in_other(
    q_ids: torch.Tensor, kv_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """First and last key with each query's id, and the run of keys that starts at the first."""
    wide = torch.promote_types(q_ids.dtype, kv_ids.dtype)
    batch = max(
        q_ids.shape[0] if q_ids.ndim == 2 else 1, kv_ids.shape[0] if kv_ids.ndim == 2 else 1
    )
    queries = torch.atleast_2d(q_ids.to(wide)).expand(batch, -1).contiguous()
    keys = torch.atleast_2d(kv_ids.to(wide)).expand(batch, -1).contiguous()
    length = keys.shape[-1]
    if length == 0 or queries.shape[-1] == 0:
        nowhere = torch.full_like(queries, length, dtype=torch.int64)
        missing = torch.full_like(queries, -1, dtype=torch.int64)
        return nowhere, missing, nowhere, missing
    values, order = keys.sort(dim=-1, stable=True)
    left = torch.searchsorted(values, queries)
    right = torch.searchsorted(values, queries, right=True) - 1
    present = left <= right
    first = order.gather(-1, left.clamp(max=length - 1))
    last = order.gather(-1, right.clamp(min=0))
    _, run_end = _runs(keys)
    end = run_end.gather(-1, first)
    nowhere, missing = torch.full_like(first, length), torch.full_like(first, -1)
    return (
        torch.where(present, first, nowhere),
        torch.where(present, last, missing),
        torch.where(present, first, nowhere),
        torch.where(present, end, missing),
    )


def _runs(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First and last position of the run of equal entries around each position."""
    places = torch.arange(ids.shape[-1], device=ids.device).expand(ids.shape)
    changes = ids[..., 1:] != ids[..., :-1]
    edge = torch.ones_like(ids[..., :1], dtype=torch.bool)
    begins = torch.cat([edge, changes], dim=-1)
    ends = torch.cat([changes, edge], dim=-1)
    start = _running_max(torch.where(begins, places, 0))
    end = _running_min_from_right(torch.where(ends, places, ids.shape[-1]))
    return start, end


def _running_max(values: torch.Tensor) -> torch.Tensor:
    return values.cummax(dim=-1).values if values.shape[-1] else values


def _running_min_from_right(values: torch.Tensor) -> torch.Tensor:
    return values.flip(-1).cummin(dim=-1).values.flip(-1) if values.shape[-1] else values


def _search(table: torch.Tensor, keys: torch.Tensor, *, right: bool) -> torch.Tensor:
    keys = keys.expand(*table.shape[:-1], -1).contiguous()
    return torch.searchsorted(table.contiguous(), keys, right=right).to(torch.int32)
