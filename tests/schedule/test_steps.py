"""Monotone tables of document ids against their definitions, by brute force."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from maskalg import causal, document
from maskalg.attention import checked_call
from maskalg.backends.triton.arguments import tables_of
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.schedule.intervals import steps
from maskalg.schedule.intervals.steps import StepTables, step_tables
from maskalg.schedule.positions import sets

Ints = NDArray[np.int64]
ids = st.lists(st.integers(-1, 3), min_size=1, max_size=12)


def definitions(q_ids: list[int], kv_ids: list[int], own: bool) -> dict[str, list[int]]:
    """The four tables and their inverses, straight from the sentences that define them."""
    n = len(kv_ids)
    keys = range(n)
    queries = range(len(q_ids))
    kept = [[y for y in keys if kv_ids[y] == q_ids[x]] for x in queries]
    first = [min(min(kept[z], default=n) for z in queries if z >= x) for x in queries]
    last = [max(max(kept[z], default=-1) for z in queries if z <= x) for x in queries]
    sure = [run_of(kv_ids, q_ids[x], x if own else min(kept[x], default=n)) for x in queries]
    start = [max(sure[z][0] for z in queries if z <= x) for x in queries]
    end = [min(sure[z][1] for z in queries if z >= x) for x in queries]
    beyond = len(q_ids)
    return {
        "first": first,
        "last": last,
        "start": start,
        "end": end,
        "first'": [min((x for x in queries if last[x] >= y), default=beyond) for y in keys],
        "last'": [max((x for x in queries if first[x] <= y), default=-1) for y in keys],
        "start'": [min((x for x in queries if end[x] >= y), default=beyond) for y in keys],
        "end'": [max((x for x in queries if start[x] <= y), default=-1) for y in keys],
    }


def run_of(entries: list[int], wanted: int, around: int) -> tuple[int, int]:
    """First and last position of the run of `wanted` that holds `around`; none is (n, -1)."""
    n = len(entries)
    if around == n:
        return n, -1
    low = high = around
    while low > 0 and entries[low - 1] == wanted:
        low -= 1
    while high < n - 1 and entries[high + 1] == wanted:
        high += 1
    return low, high


def entries_of(tables: StepTables, name: str) -> list[int]:
    """A table of ids without a batch; two tensors of ids give it a batch of one."""
    table = tables.named(name)
    assert table.ndim == 1 or table.shape[0] == 1
    return [int(entry) for entry in table.reshape(-1).tolist()]


def check(q_ids: list[int], kv_ids: list[int] | None = None) -> StepTables:
    q_tensor = torch.tensor(q_ids)
    kv_tensor = q_tensor if kv_ids is None else torch.tensor(kv_ids)
    tables = step_tables(q_tensor, kv_tensor)
    own = kv_ids is None
    for name, wanted in definitions(q_ids, q_ids if kv_ids is None else kv_ids, own).items():
        assert entries_of(tables, name) == wanted, f"{name} of {q_ids} and {kv_ids}"
    return tables


@given(ids)
def test_one_tensor_of_ids(q_ids: list[int]) -> None:
    check(q_ids)


@given(ids.map(sorted))
def test_sorted_ids(q_ids: list[int]) -> None:
    assert check(q_ids).contiguous()


@given(ids.map(sorted).filter(len))
def test_entries_of_sorted_ids_are_searched_for(q_ids: list[int]) -> None:
    q_tensor, places = torch.tensor(q_ids), torch.arange(len(q_ids))
    searched, made = step_tables(q_tensor, q_tensor), step_tables(*[q_tensor.clone()] * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_SEARCHES", 0)
        for name in ("first", "last", "start", "end", "first'", "last'", "start'", "end'"):
            found = searched.entries(name, places)
            assert found.dtype == torch.int64 and found.tolist() == entries_of(made, name), name
            one = searched.entries(name, places[-1])  # a bound that is the same for all tiles
            assert (one.ndim, one.item()) == (0, found[-1].item()), name
    assert not searched.tables, "a table was made"


@given(ids, ids)
def test_ids_of_queries_and_of_keys(q_ids: list[int], kv_ids: list[int]) -> None:
    check(q_ids, kv_ids)


@given(ids, ids, st.booleans())
def test_what_the_tables_promise(q_ids: list[int], kv_ids: list[int], own: bool) -> None:
    """Monotone; every kept key within first..last; every key of start..end kept."""
    q_tensor = torch.tensor(q_ids)
    kv_tensor = q_tensor if own else torch.tensor(kv_ids)
    keys = q_ids if own else kv_ids
    tables = step_tables(q_tensor, kv_tensor)
    first, last, start, end = (
        entries_of(tables, name) for name in ("first", "last", "start", "end")
    )
    for table in (first, last, start, end):
        assert table == sorted(table)
    for x, own_id in enumerate(q_ids):
        for y, key_id in enumerate(keys):
            if own_id == key_id:
                assert first[x] <= y <= last[x]
            if start[x] <= y <= end[x]:
                assert own_id == key_id


@given(ids, ids)
def test_inverses_are_galois_connections(q_ids: list[int], kv_ids: list[int]) -> None:
    tables = step_tables(torch.tensor(q_ids), torch.tensor(kv_ids))
    row = {name: entries_of(tables, name) for name in ("first", "last", "start", "end")}
    back = {name: entries_of(tables, name + "'") for name in row}
    for x in range(len(q_ids)):
        for y in range(len(kv_ids)):
            assert (row["last"][x] >= y) == (x >= back["first"][y])
            assert (row["first"][x] <= y) == (x <= back["last"][y])
            assert (row["end"][x] >= y) == (x >= back["start"][y])
            assert (row["start"][x] <= y) == (x <= back["end"][y])


def test_one_tensor_is_its_own_inverse() -> None:
    tables = step_tables(*[torch.tensor([4, 4, 2, 2, 2, 7])] * 2)
    for name in ("first", "last", "start", "end"):
        assert tables.named(name).tolist() == tables.named(name + "'").tolist()


def test_tables_written_out() -> None:
    tables = step_tables(*[torch.tensor([5, 5, 3, 3, 3, 9])] * 2)
    assert entries_of(tables, "first") == entries_of(tables, "start") == [0, 0, 2, 2, 2, 5]
    assert entries_of(tables, "last") == entries_of(tables, "end") == [1, 1, 4, 4, 4, 5]
    again = step_tables(*[torch.tensor([5, 3, 5, 9])] * 2)
    assert entries_of(again, "first") == [0, 0, 0, 3]
    assert entries_of(again, "last") == [2, 2, 2, 3]
    assert entries_of(again, "start") == entries_of(again, "end") == [0, 1, 2, 3]
    cross = step_tables(torch.tensor([1, 2]), torch.tensor([2, 2, 1, 0]))
    found = {name: entries_of(cross, name) for name in ("first", "last", "start", "end")}
    assert found == {"first": [0, 0], "last": [2, 2], "start": [2, 2], "end": [1, 1]}


@pytest.mark.parametrize(
    ("entries", "contiguous"),
    [([0, 0, 1, 1], True), ([7, 7, -2, 3, 3], True), ([0, 1, 0], False), ([0], True)],
)
def test_contiguous(entries: list[int], contiguous: bool) -> None:
    assert step_tables(*[torch.tensor(entries)] * 2).contiguous() is contiguous


def test_contiguous_of_two_tensors() -> None:
    keys = torch.tensor([0, 0, 1, 2])
    assert step_tables(torch.tensor([0, 1, 1, 2]), keys).contiguous()
    assert not step_tables(torch.tensor([1, 0]), keys).contiguous(), "not in the same order"
    assert not step_tables(torch.tensor([0, 5]), keys).contiguous(), "an id that no key has"


def test_batches_are_apart() -> None:
    rows = [[0, 0, 1, 1], [0, 1, 0, 1]]
    tables = step_tables(*[torch.tensor(rows)] * 2)
    for b, row in enumerate(rows):
        alone = step_tables(*[torch.tensor(row)] * 2)
        for name in ("first", "last", "start", "end", "first'", "last'", "start'", "end'"):
            assert tables.named(name)[b].tolist() == alone.named(name).tolist()


def test_ids_of_one_side_per_batch() -> None:
    shared, each = [0, 0, 1], [[0, 1, 1], [1, 0, 0]]
    tables = step_tables(torch.tensor(shared), torch.tensor(each))
    for b, row in enumerate(each):
        alone = step_tables(torch.tensor(shared), torch.tensor(row))
        assert tables.named("first")[b].tolist() == entries_of(alone, "first")
        assert tables.named("end")[b].tolist() == entries_of(alone, "end")


def test_tables_are_remembered_while_the_ids_stay() -> None:
    q_ids, kv_ids = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    tables = step_tables(q_ids, kv_ids)
    assert step_tables(q_ids, kv_ids) is tables
    kv_ids[0] = 1
    assert entries_of(step_tables(q_ids, kv_ids), "first") == [0, 0, 0]
    assert entries_of(step_tables(q_ids, torch.tensor([0, 1, 0])), "last") == [2, 2, 2]


def test_inference_tensors_are_not_remembered() -> None:
    with torch.inference_mode():
        q_ids = torch.tensor([0, 0, 1])
        assert step_tables(q_ids, q_ids).named("last").tolist() == [1, 1, 2]
        q_ids[1] = 1
        assert step_tables(q_ids, q_ids).named("last").tolist() == [0, 2, 2]


@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0)])
def test_empty_tables(lengths: tuple[int, int]) -> None:
    q_len, kv_len = lengths
    tables = step_tables(torch.zeros(q_len, dtype=torch.int64), torch.zeros(kv_len).long())
    assert entries_of(tables, "first") == [kv_len] * q_len
    assert entries_of(tables, "end") == [-1] * q_len
    assert entries_of(tables, "first'") == [q_len] * kv_len


class Counting(TorchDispatchMode):
    """Counts what is computed on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backward", [False, True])
def test_a_call_computes_no_table_again(backward: bool) -> None:
    """The tables of both passes: computed at the first call, and when the ids were changed."""
    packed = torch.tensor([3, 3, 1, 1, 2, 3])
    call = checked_call(*torch.zeros(3, 1, 1, 6, 8), causal & document(packed))
    hooks = hooks_of(call.form.structure, Style(ptx=True, long=True), backward=backward)

    def tables() -> tuple[int, tuple[torch.Tensor, ...]]:
        with Counting() as mode:
            found = tables_of(hooks, call)
        return mode.count, found

    first, once = tables()
    again, twice = tables()
    assert first > 0 and again == 0
    assert all(a is b for a, b in zip(once, twice, strict=True))
    packed[0] = 1
    assert tables()[0] == first


def test_ids_that_are_gone_are_forgotten() -> None:
    gc.collect()  # ids of earlier tests must not go in the middle of this one
    before = len(steps._TABLES)
    q_ids, kv_ids = torch.tensor([1, 1, 2]), torch.tensor([1, 2, 2])
    step_tables(q_ids, q_ids)
    tables = step_tables(q_ids, kv_ids)
    assert len(steps._TABLES) == before + 2
    assert step_tables(q_ids, kv_ids) is tables
    del q_ids
    gc.collect()
    assert len(steps._TABLES) == before
