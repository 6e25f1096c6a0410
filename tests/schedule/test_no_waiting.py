"""What depends on values of tensors is computed on their device, without a look at it by the host.

A dispatch mode refuses every operation that would wait for a device or whose result has a size
that depends on values; fake tensors have no values at all.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import maskalg as ma
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import Bound, bound
from maskalg.proof.proof import prove_structure
from maskalg.schedule.intervals.intervals import key_range, rows_of
from maskalg.schedule.intervals.steps import step_tables, tables_of
from maskalg.schedule.positions.sections import prepared
from maskalg.schedule.tiling import Tiling
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE

WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "is_nonzero",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave.Tensor",
    "equal",
)
ON_TENSORS = [
    name
    for name, case in CATALOGUE.items()
    if any(isinstance(value, torch.Tensor) for value in bound(case.mask).values)
]


class NeverWaiting(TorchDispatchMode):
    """Refuses what a host would have to wait for."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::")
        assert name not in WAITING and name.split(".")[0] not in WAITING, name
        if name.startswith("index.Tensor"):
            assert all(i is None or i.dtype != torch.bool for i in args[1]), "Boolean index"
        return func(*args, **(kwargs or {}))


def test_waiting_is_refused() -> None:
    x = torch.arange(4)
    for wait in (lambda: int(x[1]), lambda: x.nonzero(), lambda: x[x > 1], lambda: bool(x.any())):
        with NeverWaiting(), pytest.raises(AssertionError):
            wait()


PLACES = torch.tensor([[0, 2, 9]])
MADE = {
    "blocks": lambda: ma.block_table.from_kv_indices(PLACES, 4, columns=3),
    "columns": lambda: ma.vertical_slash.from_indices(PLACES[0], PLACES[0] - 1, 3),
    "kinds": lambda: ma.modality(PLACES, torch.ones(3, 3, dtype=torch.bool)),
    "media": lambda: ma.media(PLACES.flip(-1), 2),
    "documents that share": lambda: ma.shared_prefix(PLACES, torch.tensor([-1, 0, 9])),
    "distances": lambda: ma.graphormer(torch.ones(3, 2), PLACES),
}


@pytest.mark.parametrize("name", MADE)
def test_entries_are_not_looked_at(name: str) -> None:
    """Entries that would be refused on the CPU are not waited for elsewhere, nor written by."""
    with pytest.raises(ma.MaskValueError):
        MADE[name]()
    with NeverWaiting():
        made = MADE[name]()
    kept = [t.shape for t in made.parameters.values() if isinstance(t, torch.Tensor)]
    if name == "blocks":
        assert made.to_dense(4, 12)[0, 0].any(0).tolist() == 4 * [True] + 4 * [False] + 4 * [True]
    if name == "columns":
        assert kept == [(3,), (3,)]
        assert made.to_dense(3)[0, 0].int().tolist() == [[1, 0, 0], [1, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("parents", [[-1, 0, 0, 2], [2, 2, -1, 0], [-1, -1, -1, -1], [3, 0, 1, -1]])
def test_documents_that_share_are_found_without_a_look(parents: list[int]) -> None:
    for ids in ([0, 0, 1, 2, 2, 3], [3, 1, 1, 0, 2, 0]):
        tensors = torch.tensor(ids), torch.tensor(parents)
        wanted = ma.shared_prefix(*tensors).to_dense(6)
        with NeverWaiting():
            found = ma.shared_prefix(*tensors)
        assert torch.equal(found.to_dense(6), wanted)
    with NeverWaiting():
        outside = ma.shared_prefix(torch.tensor([0, 1, 5]), torch.tensor([-1, 7]))
        ma.shared_prefix(*tensors[:1], torch.tensor([1, 0, 3, 2]))  # circles go unnoticed
    assert outside.to_dense(3)[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_segments_that_share_are_packed_without_a_look() -> None:
    given = torch.tensor([0, 2, 3, 5]), torch.tensor([-1, 0, 0])
    with NeverWaiting():
        mask = ma.shared_prefix.from_cu_seqlens(*given, total=6)
        depths = ma.shared_prefix.depths(*given, total=6)
        drafted = ma.drafts(given[0], 5, 2)
    assert torch.equal(mask.to_dense(5), ma.shared_prefix([0, 0, 1, 2, 2], given[1]).to_dense(5))
    assert depths.tolist() == [0, 1, 2, 2, 3, 0]
    assert torch.equal(drafted.to_dense(13), ma.drafts(*given[:1], 5, 2).to_dense(13))


@pytest.mark.parametrize("name", ON_TENSORS)
def test_tables_and_bounds(name: str) -> None:
    """Everything a kernel is given: tables of documents, and bounds of its loops."""
    form = bound(CATALOGUE[name].mask)
    forms = prove_structure(form.structure).forms
    with NeverWaiting(), torch.inference_mode():
        # Copies are remembered by nobody.
        values = tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in form.values)
        extents = resolve(form, Lengths(40, 37, BATCH, HEADS))
        tiling = Tiling(Bound(form.structure, values), extents, (8, 8))
        rows = rows_of(tiling)
        for span in forms.touched + forms.unfull:
            found = key_range(span, rows)
            assert found.low.shape == found.high.shape == tiling.shape[:3]
            for node in [n for b in span.lows + span.highs for n in b.walk() if n.op == "step"]:
                assert tables_of(node, values).named(str(node.data)).dtype == torch.int32
            if span.section is not None:
                prepared(span.section, rows, (8, 8))


@pytest.mark.parametrize("shapes", [((40,), (40,)), ((2, 40), (2, 37)), ((40,), (2, 37))])
def test_tables_need_no_values(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with FakeTensorMode():
        q_ids, kv_ids = (torch.empty(shape, dtype=torch.int64) for shape in shapes)
        for pair in ((q_ids, kv_ids), (q_ids, q_ids)):
            tables = step_tables(*pair)
            for name in ("first", "last", "start", "end", "first'", "last'", "start'", "end'"):
                assert tables.named(name).dtype == torch.int32


@pytest.mark.parametrize("own", [True, False])
def test_tables_compile_whole(own: bool) -> None:
    def tables(q_ids: torch.Tensor, kv_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = step_tables(q_ids, q_ids if own else kv_ids)
        return tuple(found.named(name) for name in ("first", "last", "start", "end", "last'"))

    compiled = torch.compile(tables, backend="eager", fullgraph=True)
    ids = torch.tensor([3, 3, 1, 1, 2, 3])
    for found, wanted in zip(compiled(ids, ids.flip(0)), tables(ids, ids.flip(0)), strict=True):
        assert torch.equal(found, wanted)
