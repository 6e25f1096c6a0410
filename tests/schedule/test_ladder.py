"""The rungs below the closed forms, each against brute force."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskalg import (
    Mask,
    block_table,
    causal,
    dense,
    document,
    kv_idx,
    maximum,
    morton_neighborhood,
    q_idx,
    sliding,
    table,
    where,
)
from maskalg.engine.evaluate import Environment, evaluate, grid
from maskalg.engine.extents import Lengths, dependence, resolve
from maskalg.engine.normal_form import Bound, bound, transposed
from maskalg.proof.proof import prove_structure
from maskalg.schedule.intervals import rung as intervals
from maskalg.schedule.intervals.intervals import rows_of
from maskalg.schedule.positions.rank_ranges import RankRanges
from maskalg.schedule.positions.rests import Maxima
from maskalg.schedule.rung import rung_of
from maskalg.schedule.summaries.summaries import Summaries
from maskalg.schedule.tile_runs import EMPTY, FULL
from maskalg.schedule.tiling import Tiling
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact, oracle

FIELD = Path(__file__).parents[2] / "benchmarks" / "exactness_masks.py"
MASKS: dict[str, Mask] = runpy.run_path(str(FIELD))["masks"]()

SHAPES = (
    (1000, 777, (64, 48)),
    (63, 63, (16, 32)),
    (1, 1000, (128, 128)),
    (1000, 1100, (300, 520)),
)


def labels_of(
    form: Bound, q_len: int, kv_len: int, block: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels without evaluation, the tiles left open, and labels by brute force."""
    extents = resolve(form, Lengths(q_len, kv_len, 1, 2))
    sizes = dependence(form.structure.mask, form, extents)
    labels, places = rung_of(form.structure).labels(Tiling(form, extents, block))
    at = grid(sizes.batch, sizes.heads, (0, q_len), (0, kv_len), torch.device("cpu"))
    kept = evaluate(form.structure.mask, Environment(at, form.values))
    kept = kept.expand(sizes.batch, sizes.heads, q_len, kv_len)
    return labels, places, torch.from_numpy(oracle.labels(kept.numpy(), *block))


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_the_field_are_proved(name: str) -> None:
    """Every empty and full block is known without a look at it, also with q and k exchanged."""
    form = bound(MASKS[name])
    for way in (form, Bound(transposed(form.structure), form.values)):
        for q_len, kv_len, block in SHAPES:
            labels, places, wanted = labels_of(way, q_len, kv_len, block)
            unknown = torch.zeros_like(labels, dtype=torch.bool)
            unknown[places.unbind(dim=1)] = True
            case = f"{name}, {q_len} x {kv_len}, {block}\n{prove_structure(way.structure)}"
            assert torch.equal(labels[~unknown], wanted[~unknown]), case
            open_ones = wanted[unknown]
            assert not ((open_ones == EMPTY) | (open_ones == FULL)).any(), case
            if prove_structure(way.structure).exact:
                assert not len(places), case


@pytest.mark.parametrize("name", MASKS)
def test_tiles_of_some_rows_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and open tiles are the same when few rows of tiles are labelled together."""
    form = bound(MASKS[name])
    for way in (form, Bound(transposed(form.structure), form.values)):
        tiling = Tiling(way, resolve(way, Lengths(1000, 777, 1, 2)), (64, 48))
        labels, places = rung_of(way.structure).labels(tiling)
        with monkeypatch.context() as patch:
            patch.setattr(intervals, "_TILES_AT_ONCE", 40)
            some_labels, some_places = rung_of(way.structure).labels(tiling)
        assert torch.equal(labels, some_labels)
        assert sorted(places.tolist()) == sorted(some_places.tolist())


@pytest.mark.parametrize(
    ("name", "rung"),
    [
        ("sinks and window", "closed form"),
        ("kinds of keys", "token sets"),
        ("flags of queries", "token sets"),
        ("two remainders", "tile predicates"),
        ("modality table", "tile predicates"),
        ("permutation", "tile predicates"),
        ("products", "summaries"),
    ],
)
def test_the_rung_is_named(name: str, rung: str) -> None:
    proof = MASKS[name].prove()
    assert proof.rung == rung
    assert proof.exact == (rung != "summaries")
    assert bool(proof.reasons) == (rung == "summaries")


@pytest.mark.parametrize("name", ["flags of queries", "recurring, sliding", "permutation, local"])
def test_keys_of_sections_are_exact(name: str) -> None:
    assert_closed_forms_sound(MASKS[name], 200, 150, 16, batch=1, heads=2)


@given(st.data())
def test_random_entries(data: st.DataObject) -> None:
    """Conditions of every kind in one clause, over random entries."""
    length = data.draw(st.sampled_from((1, 5, 23, 40)))
    entries = st.lists(st.integers(-2, 3), min_size=length, max_size=length)
    a, b, c = (table(torch.tensor(data.draw(entries)), name) for name in "abc")
    parts = [
        a[q_idx] == b[kv_idx],
        c[q_idx] == c[kv_idx],
        a[q_idx] >= b[kv_idx],
        c[kv_idx] + 1 >= a[q_idx],
        (kv_idx - a[q_idx]) // 3 == (q_idx - a[q_idx]) // 3,
        a[q_idx] >= 1,
        b[kv_idx] >= 2,
        (q_idx + 2 * kv_idx) % 3 == 1,
        (q_idx - kv_idx) % 2 == 0,
        kv_idx >= q_idx - 3,
        kv_idx <= q_idx + a[q_idx],
        q_idx >= kv_idx + b[kv_idx],
        c[maximum(q_idx - kv_idx, 0)] == 1,
    ]
    chosen = data.draw(st.lists(st.sampled_from(parts), min_size=1, max_size=4))
    mask = chosen[0]
    for part in chosen[1:]:
        mask = mask & (part if data.draw(st.booleans()) else ~part)
    block = data.draw(st.sampled_from((1, 3, 8, (4, 16), (16, 5))))
    assert_labels_exact(mask, length, block=block)
    assert_closed_forms_sound(~mask, length, block_q=4)


@pytest.mark.parametrize("kinds", [3, 64, 150])
def test_tables_of_categories(kinds: int) -> None:
    random = torch.Generator().manual_seed(kinds)
    pairs = table(torch.rand(kinds, kinds, generator=random) < 0.02, "pairs")
    kind = table(torch.randint(0, kinds, (150,), generator=random), "kind")
    flags = table(torch.rand(150, generator=random) < 0.3, "flags")
    for mask in (pairs[kind[q_idx], kind[kv_idx]], pairs[kind[q_idx], kv_idx % 3] & flags[q_idx]):
        for block in (8, (16, 5)):
            assert assert_labels_exact(mask & causal, 150, block=block).evaluated == 0
    moved = (~(flags[q_idx] | dense(torch.eye(160).bool()))).shift(kv=6)
    assert not moved.prove().exact
    assert_labels_exact(moved, 20, block=(4, 1))


def test_tables_of_categories_beside_entries_of_positions() -> None:
    random = torch.Generator().manual_seed(0)
    pairs = table(torch.randint(0, 6, (4, 4), generator=random), "pairs")
    own = table(torch.randint(0, 6, (16,), generator=random), "own")
    kind = table(torch.randint(0, 4, (16,), generator=random), "kind")
    for mask in (
        pairs[q_idx // 4, kv_idx // 4] >= own[q_idx],
        pairs[q_idx // 4, kv_idx // 4] == own[kv_idx],
        pairs[kind[q_idx], kv_idx // 4] >= own[q_idx],
        pairs[q_idx // 4, kv_idx // 4] >= own[q_idx // 4],
    ):
        assert_labels_exact(mask, 16, block=4)
        assert mask.cost(16, block=4).kept == int(mask.to_dense(16).sum())


def test_real_distances_are_rounded_as_elements_are() -> None:
    for mask in (
        (0.1 * q_idx - 0.1 * kv_idx >= 0.3) & (q_idx - kv_idx < 4),
        (q_idx - kv_idx) * 0.1 >= 0.3,
    ):
        for lengths, block in (((40, 40), 1), ((40, 17), (3, 5)), ((17, 40), 8)):
            assert_labels_exact(mask, *lengths, block=block)
            kept = mask.cost(*lengths, block=block).kept
            assert kept == int(mask.to_dense(*lengths).sum())


def test_entries_between_two_values() -> None:
    random = torch.Generator().manual_seed(0)
    entries = torch.randint(-5, 6, (2, 1, 19), generator=random)
    members = torch.rand(1, 1, 19, generator=random) < 0.7
    limits = torch.tensor([[-2, 2], [3, 9], [1, -1], [-9, -4]])
    ranks = RankRanges.of(entries, members, limits.T.reshape(2, 1, 1, 4).unbind(), None)
    for row in range(2):
        for low in range(19):
            for high in range(low, 19):
                at = (torch.tensor(row), torch.tensor(0))
                ends = (torch.tensor(low), torch.tensor(high))
                inside = entries[row, 0, low : high + 1][members[0, 0, low : high + 1]]
                found = ranks.count(at, torch.arange(4), *ends)
                for count, (least, most) in zip(found, limits, strict=True):
                    assert count == ((inside >= least) & (inside <= most)).sum()


def test_open_tiles_are_halved() -> None:
    mask = morton_neighborhood((32, 32), 5)
    for block in (512, (300, 257), (1024, 64)):
        assert assert_labels_exact(mask, 1024, block=block).evaluated > 0
    one = torch.zeros(1024, 1024, dtype=torch.bool)
    one[700, 3] = True
    far = (q_idx * kv_idx >= 900 * 900) | dense(one)
    assert assert_labels_exact(far, 1000, block=(1000, 500)).evaluated > 0


@pytest.mark.parametrize("name", MASKS)
def test_larger_tiles_are_decided_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are the same, and no more tiles stay open, if larger tiles rule out spans."""
    form = bound(MASKS[name])
    for q_len, kv_len, block in ((500, 389, (16, 12)), (389, 500, (24, 5))):
        tiling = Tiling(form, resolve(form, Lengths(q_len, kv_len, 1, 2)), block)
        labels, places = rung_of(form.structure).labels(tiling)
        with monkeypatch.context() as patch:
            patch.setattr(intervals, "_FEW_TILES", 3)
            found, left = rung_of(form.structure).labels(tiling)
        open_ = {tuple(place) for place in places.tolist()}
        still_open = {tuple(place) for place in left.tolist()}
        assert still_open <= open_
        decided = [list(each) for each in open_ - still_open]
        if not decided:
            assert torch.equal(labels, found)
            continue
        rest = labels == found
        rest[torch.tensor(decided).unbind(dim=1)] = True
        assert rest.all()


def test_tables_of_many_blocks() -> None:
    """Blocks that tiles do not follow, some of their positions dropped."""
    random = torch.Generator().manual_seed(0)
    kept = torch.rand(2, 1, 75, 90, generator=random) < 0.3
    some = table(torch.rand(300, generator=random) < 0.8, "some")
    blocks = block_table(kept, (4, 3))
    for mask in (
        blocks & causal,
        blocks & some[q_idx] & some[kv_idx] & sliding(100),
        sliding(20) | blocks & some[kv_idx],
    ):
        for block in (2, 5, (1, 12), (17, 8)):
            assert assert_labels_exact(mask, 300, 260, block=block).evaluated == 0


def test_different_documents_behind_limits() -> None:
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 40, (2, 300), generator=random)
    first = table(torch.randint(0, 300, (300,), generator=random), "first")
    for mask in (
        ~document(ids) & (first[q_idx] <= kv_idx),
        document(ids) | (first[kv_idx] > q_idx),
    ):
        for block in (4, (9, 20)):
            assert assert_labels_exact(mask, 300, block=block).evaluated == 0


def test_a_changed_tensor_is_seen() -> None:
    flags = torch.zeros(64, dtype=torch.bool)
    mask = causal & table(flags, "flags")[q_idx]
    assert mask.blocks(64, block=16).counts() == (16, 0, 0)
    flags[40] = True
    assert assert_labels_exact(mask, 64, block=16).counts() == (13, 3, 0)
    ids = torch.arange(64) % 3
    recurring = document(ids) & sliding(4)
    before = recurring.blocks(64, block=4).labels.clone()
    ids.copy_(torch.arange(64))
    after = assert_labels_exact(recurring, 64, block=4).labels
    assert not torch.equal(before, after)


def test_maxima_of_all_ranges() -> None:
    entries = torch.randint(-9, 9, (2, 1, 21), generator=torch.Generator().manual_seed(0))
    maxima = Maxima.of(entries, 8, torch.maximum)
    for row in range(2):
        for low in range(21):
            for high in range(low, min(low + 8, 21)):
                at = (torch.tensor(row), torch.tensor(0))
                found = maxima.over(at, torch.tensor(low), torch.tensor(high))
                assert found == entries[row, 0, low : high + 1].max()


@given(st.data())
def test_summaries_enclose(data: st.DataObject) -> None:
    """What summaries call sure holds for every pair of a tile, and what they rule out for none."""
    ranks = torch.tensor(data.draw(st.lists(st.integers(-9, 9), min_size=24, max_size=24)))
    rank = table(ranks, "rank")
    q, k = q_idx, kv_idx
    formulas = [
        q * k - rank[q] * rank[k] >= 30,
        rank[q] + q >= rank[k] + 3 * k,
        rank[q] == rank[k],
        (q * 3 - rank[k]) // 4 == k // 3,
        (q + rank[k]) % 5 >= k - 3,
        where(q >= k, rank[q] * k, q - k) >= 4,
        ~(maximum(q - rank[k], k) >= 8) | (q * rank[q] >= k),
    ]
    mask = data.draw(st.sampled_from(formulas))
    form = bound(mask)
    extents = resolve(form, Lengths(24, 20, 1, 1))
    rows = rows_of(Tiling(form, extents, (5, 4)))
    places = torch.cartesian_prod(*[torch.arange(n) for n in (1, 1, 5, 5)])
    surely, perhaps = Summaries(rows, places.unbind(dim=1), (5, 4)).truth(form.structure.mask)
    kept = mask.to_dense(24, 20)[0, 0]
    for (_, _, row, column), sure, may in zip(places, surely, perhaps, strict=True):
        tile = kept[row * 5 : row * 5 + 5, column * 4 : column * 4 + 4]
        assert tile.all() or not sure
        assert not tile.any() or may


def test_nested_choices_do_not_hang() -> None:
    x = q_idx
    for step in range(8):
        x = where(q_idx - kv_idx >= step * step, x + step, x - 2 * step + kv_idx // (step + 1))
    mask = x >= kv_idx
    proof = mask.prove()
    assert proof.milliseconds < 60_000
    assert proof.rung == "summaries" and proof.reasons[0].startswith("more than ")
    assert_labels_exact(mask, 60, 50, block=16)
