"""Runs of tiles: disjoint, in order, nothing kept outside of them, full where they say so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from maskalg import causal, everything, nothing, prefix, sliding
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.schedule.intervals.rung import in_order
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tile_runs import EMPTY, FULL, PARTIAL, Run, TileRuns
from maskalg.schedule.tiling import Tiling
from maskalg.testing import describe, oracle
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.catalogue import CATALOGUE
from maskalg.testing.strategies import Shape, masks, shapes
from maskalg.values.algebra import Mask

SHAPES = (Shape(37, 37, 8, 5), Shape(40, 23, 7, 16), Shape(23, 40, 4, 4), Shape(1, 33, 8, 8))


def table_of(mask: Mask, shape: Shape) -> TileRuns:
    form = bound(mask)
    extents = resolve(form, Lengths(*shape.lengths, BATCH, HEADS))
    return rung_of(form.structure).runs(Tiling(form, extents, shape.block))


def check(case: Case, shape: Shape) -> None:
    runs = table_of(case.mask, shape)
    dense = case.mask.to_dense(*shape.lengths, batch=BATCH, heads=HEADS).numpy()
    wanted = oracle.labels(dense, *shape.block)
    form, closed_forms = bound(case.mask), case.mask.prove().forms
    decided = all(
        span.exact and span.residue is None and span.keys is None and in_order(span, form)
        for span in closed_forms.touched + closed_forms.unfull
    )
    for batch, head, row in np.ndindex(*wanted.shape[:3]):
        where = f"{describe(case.mask)}\n{shape}, batch {batch}, head {head}, row {row}"
        found = np.full(wanted.shape[3], EMPTY)
        visited_to = 0
        for run in runs.row(batch, head, row):
            assert run.label in (PARTIAL, FULL), where
            assert visited_to <= run.first < run.end <= wanted.shape[3], f"{where}: {run}"
            visited_to = run.end
            found[run.first : run.end] = run.label
        truth = wanted[batch, head, row]
        assert not ((found == EMPTY) & (truth != EMPTY)).any(), f"{where}: a kept tile is left out"
        assert not ((found == FULL) & (truth != FULL)).any(), f"{where}: a tile is not full"
        if decided:
            assert (found == truth).all(), f"{where}: {found} instead of {truth}"


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue(name: str) -> None:
    for shape in SHAPES:
        check(CATALOGUE[name], shape)


@given(masks(depth=2), shapes())
def test_random_compositions(case: Case, shape: Shape) -> None:
    check(case, shape)


def rows(mask: Mask, shape: Shape) -> list[list[tuple[int, int, int]]]:
    table = table_of(mask, shape)
    count = -(-shape.q_len // shape.block_q)
    return [[(r.first, r.end, r.label) for r in table.row(0, 0, row)] for row in range(count)]


def test_runs_written_out() -> None:
    shape = Shape(8, 8, 2, 2)
    assert rows(everything, shape) == [[(0, 4, FULL)]] * 4
    assert rows(nothing, shape) == [[]] * 4
    assert rows(causal, shape) == [
        [(0, 1, PARTIAL)],
        [(0, 1, FULL), (1, 2, PARTIAL)],
        [(0, 2, FULL), (2, 3, PARTIAL)],
        [(0, 3, FULL), (3, 4, PARTIAL)],
    ]
    # The window overlaps the prefix in the first rows: no tile may come twice.
    sinks = causal & (sliding(2) | prefix(2))
    assert rows(sinks, shape) == [
        [(0, 1, PARTIAL)],
        [(0, 1, FULL), (1, 2, PARTIAL)],
        [(0, 1, FULL), (1, 3, PARTIAL)],
        [(0, 1, FULL), (2, 4, PARTIAL)],
    ]


def test_row_beyond_the_batch_reads_what_all_share() -> None:
    table = table_of(causal, Shape(8, 8, 4, 4))
    assert table.row(1, 2, 0) == table.row(0, 0, 0) == [Run(0, 1, PARTIAL)]


def test_length_does_not_change_how_many_runs_a_row_has() -> None:
    mask = causal & sliding(64)
    short, long = (table_of(mask, Shape(n, n, 16, 16)) for n in (256, 4096))
    most = [int(runs.row_start.diff().max()) for runs in (short, long)]
    assert most[0] == most[1] <= 5
    assert long.shape[2] == 256


def test_runs_of_documents_per_batch() -> None:
    case = CATALOGUE["document per batch"]
    table = table_of(case.mask, Shape(40, 40, 8, 8))
    assert table.shape[0] == BATCH
    assert table.row(0, 0, 0) != table.row(1, 0, 0)
