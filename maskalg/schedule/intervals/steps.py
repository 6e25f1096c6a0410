"""Monotone tables of packed documents: one pass over the ids, on their device, without waiting.

For queries x and keys y, a pair is kept if its ids are equal:

- `first[x]`: the first key that a query >= x may keep;   `last[x]`: the last one for queries <= x;
- `start[x]`, `end[x]`: keys that x surely keeps, narrowed so that both are monotone in x.

All four are non-decreasing. If equal ids are contiguous, `first = start` and `last = end`, and the
closed forms built on them are exact; otherwise they are sound, whatever the ids are. For ids with a
declared order, the tables are made without sorting, and the order is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ...engine.memory import Memory
from ...engine.normal_form import Value
from ...formula.entries import ensure, readable
from ...formula.nodes import Node
from ...formula.parameters import Order, Slot, common_order
from ..positions.sets import PositionSet

_TABLES: Final = Memory(1024)
_SORTED: Final = Memory(1024)
_FORWARD: Final = {"first'": "last", "last'": "first", "start'": "end", "end'": "start"}


@dataclass(frozen=True, eq=False)
class StepTables:
    """The tables of one pair of id tensors, int32 `[length]` or `[batch, length]` each.

    Attributes:
        tables: the tables made so far, by the names that closed forms use. A prime marks the
            inverse, from keys to queries; "contiguous" is one number, not 0 if the tables are
            exact.
        kv_length: how many keys there are.
        begins: the first position of each id, if queries and keys share one row of sorted ids.
            `first`, `start` and their inverses are then one table, `last` and `end` another. Few
            entries are found by search; the tables are made when many entries are read.
    """

    tables: dict[str, torch.Tensor]
    kv_length: int
    begins: PositionSet | None = None

    def named(self, name: str) -> torch.Tensor:
        """A table, made when it is first used."""
        found = self.tables.get(name)
        if found is None and self.begins is not None:
            _make_in_order(self.begins, self.tables)
            found = self.tables[name]
        if found is None:
            found = self.tables[name] = self._derive(name)
        return found

    def entries(self, name: str, position: torch.Tensor) -> torch.Tensor:
        """The entries of a table `[length]` at positions, int64."""
        at = (torch.zeros((), dtype=torch.int64),) * 2
        if self.begins is None or self.tables or not self.begins.few(at, position):
            return self.named(name)[position].to(torch.int64)
        if name.startswith(("first", "start")):
            return self.begins.last_until(at, position)
        return self.begins.first_from(at, position + 1) - 1

    def _derive(self, name: str) -> torch.Tensor:
        if name == "contiguous":
            same = (self.named("first") == self.named("start")).logical_and_(
                self.named("last") == self.named("end")
            )
            return same.all().to(torch.int32)
        forward = self.named(_FORWARD[name])
        keys = torch.arange(self.kv_length, device=forward.device, dtype=torch.int32)
        if name in ("first'", "start'"):
            return _search(forward, keys, right=False)
        return _search(forward, keys, right=True) - 1

    def contiguous(self) -> bool:
        """Whether the tables are exact. Waits for the device."""
        return self.begins is not None or bool(self.named("contiguous"))


def step_tables(
    q_ids: torch.Tensor, kv_ids: torch.Tensor, order: Order | None = None
) -> StepTables:
    """The tables of a pair of id tensors, remembered while the tensors live unchanged.

    Args:
        q_ids, kv_ids: ids of queries and of keys; one tensor where they are the same.
        order: the declared order; "contiguous" needs one tensor for both.

    Raises:
        ValueError: ids on the CPU break the order. On a GPU an assertion fails.
    """
    pair = (q_ids,) if q_ids is kv_ids else (q_ids, kv_ids)
    return _TABLES.of_tensors((order,), pair, lambda: _step_tables(q_ids, kv_ids, order))


def step_slots(node: Node) -> tuple[Slot, Slot]:
    """The slots of the query ids and the key ids that a `step` node reads."""
    q_slot, kv_slot = node.own
    return cast(Slot, q_slot), cast(Slot, kv_slot)


def tables_of(node: Node, values: tuple[Value, ...]) -> StepTables:
    """The step tables that a `step` node reads, made from the bound ids."""
    return tables_of_slots(*step_slots(node), values)


def tables_of_slots(q_slot: Slot, kv_slot: Slot, values: tuple[Value, ...]) -> StepTables:
    """The step tables of the ids bound to two slots."""
    q_ids, kv_ids = values[q_slot.index], values[kv_slot.index]
    order = common_order(q_slot, kv_slot)
    return step_tables(cast(torch.Tensor, q_ids), cast(torch.Tensor, kv_ids), order)


def read_step(node: Node, values: tuple[Value, ...], indices: list[torch.Tensor]) -> torch.Tensor:
    """The entries of a step table at `indices` (batch, if it has one, and position)."""
    tables, name = tables_of(node, values), cast(str, node.data)
    if tables.begins is not None and indices:
        return tables.entries(name, indices[-1].clamp(0, max(tables.kv_length - 1, 0)))
    table = tables.named(name)
    if not indices:
        return table
    if table.ndim > len(indices):
        table = table[0] if table.shape[0] == 1 else table
    position = indices[-1].clamp(0, max(table.shape[-1] - 1, 0))
    if table.ndim == 1:
        return table[position].to(torch.int64)
    return table[indices[0].clamp(0, table.shape[0] - 1), position].to(torch.int64)


def _step_tables(q_ids: torch.Tensor, kv_ids: torch.Tensor, order: Order | None) -> StepTables:
    if q_ids is kv_ids and (begins := _begins_in_order(q_ids)) is not None:
        return StepTables({}, len(q_ids), begins)
    if order is not None:
        return _declared_tables(q_ids, kv_ids, order)
    if q_ids is kv_ids:
        first, last = _occurrences_of_own(q_ids)
        start, end = _runs(q_ids)
    else:
        first, last, start, end = _occurrences_in_other(q_ids, kv_ids)
        if q_ids.ndim == kv_ids.ndim == 1:
            first, last, start, end = first[0], last[0], start[0], end[0]
    made = {
        "first": _running_min_from_right(first),
        "last": _running_max(last),
        "start": _running_max(start),
        "end": _running_min_from_right(end),
    }
    return StepTables(
        {name: table.to(torch.int32) for name, table in made.items()}, kv_ids.shape[-1]
    )


def _declared_tables(q_ids: torch.Tensor, kv_ids: torch.Tensor, order: Order) -> StepTables:
    """The tables of ids with a declared order.

    A query without a key has none between its `first` and its `last`: the keys before are of
    smaller ids, and those from `first` on of larger ones.
    """
    ensure("ids", q_ids, order)
    if order == "contiguous":
        start, end = (table.to(torch.int32) for table in _runs(q_ids))
        return StepTables(_exact(start, end), q_ids.shape[-1])
    if q_ids is not kv_ids:
        ensure("kv_ids", kv_ids, order)
    queries, keys = _alike(q_ids, kv_ids)
    start = torch.searchsorted(keys, queries, out_int32=True)
    end = torch.searchsorted(keys, queries, right=True, out_int32=True).sub_(1)
    return StepTables(_exact(start, end), kv_ids.shape[-1])


def _exact(start: torch.Tensor, end: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"first": start, "last": end, "start": start, "end": end}


def _alike(q_ids: torch.Tensor, kv_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in one dtype that torch can search, and for the same batch entries, if any."""
    if q_ids is kv_ids:
        ids = q_ids.contiguous()
        return ids, ids
    unsigned = any(ids.dtype in (torch.uint16, torch.uint32) for ids in (q_ids, kv_ids))
    wide = torch.int64 if unsigned else torch.promote_types(q_ids.dtype, kv_ids.dtype)
    shape = torch.broadcast_shapes(q_ids.shape[:-1], kv_ids.shape[:-1])
    queries, keys = (ids.to(wide).expand(*shape, -1).contiguous() for ids in (q_ids, kv_ids))
    return queries, keys


def is_sorted(ids: torch.Tensor) -> bool:
    """Whether one row of ids is known to be sorted, so that equal ids are contiguous; remembered.

    On the CPU a check is cheaper than sorting; on a GPU it would wait for the device, and watched
    tensors (fake tensors, torch.func) may have no values to check.
    """
    return _begins_in_order(ids) is not None


def _begins_in_order(ids: torch.Tensor) -> PositionSet | None:
    """The first position of each id in one row of ids known to be sorted; else None."""
    if ids.ndim != 1 or not readable(ids):
        return None
    return _SORTED.of_tensors((), (ids,), lambda: _begins(ids.numpy()))


def _begins(ids: NDArray[Any]) -> PositionSet | None:
    # NumPy takes an eighth of PyTorch's time for a million ids.
    if not (ids[1:] >= ids[:-1]).all():
        return None
    kept = np.ones((1, 1, len(ids)), dtype=np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=kept[0, 0, 1:])
    return PositionSet(torch.from_numpy(kept))


def _make_in_order(begins: PositionSet, tables: dict[str, torch.Tensor]) -> None:
    """Fill in the tables of one row of sorted ids."""
    places = begins.kept.flatten().nonzero()[:, 0].to(torch.int32)
    past = torch.cat([places[1:], places.new_full((1,), begins.length)])[: len(places)]
    start, end = (each.repeat_interleave(past - places) for each in (places, past - 1))
    inverses = {f"{name}'": table for name, table in _exact(start, end).items()}
    one = torch.ones((), dtype=torch.int32)
    tables.update({**_exact(start, end), **inverses, "contiguous": one})


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
    queries, keys = map(torch.atleast_2d, _alike(q_ids, kv_ids))
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
