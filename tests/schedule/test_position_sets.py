"""Sets of positions: members and ends against a list; what is remembered fits the call."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import chunked, document, kv_idx, q_idx
from maskalg.engine.evaluate import Environment
from maskalg.engine.normal_form import bound
from maskalg.schedule.positions import sets
from maskalg.schedule.positions.sets import PositionSet, ends, position_set
from maskalg.testing import assert_labels_exact
from maskalg.testing.case import BATCH, HEADS, Case
from maskalg.testing.strategies import masks
from maskalg.values.masks.canvases.neighborhood import _morton

ROWS = st.lists(st.booleans(), max_size=12)


@given(ROWS, st.integers(-2, 14), st.integers(-2, 14))
def test_a_set_is_its_members(row: list[bool], low: int, high: int) -> None:
    members = [place for place, kept in enumerate(row) if kept]
    found = PositionSet(torch.tensor(row, dtype=torch.bool).view(1, 1, -1))
    at = (torch.zeros(1, dtype=torch.int64),) * 2
    x, y = torch.tensor([low]), torch.tensor([high])
    assert int(found.first_from(at, x)) == min([m for m in members if m >= low], default=len(row))
    assert int(found.last_until(at, y)) == max([m for m in members if m <= high], default=-1)
    if low <= high + 1:
        assert int(found.between(at, x, y)) == len([m for m in members if low <= m <= high])


@given(st.lists(ROWS, min_size=2, max_size=2))
def test_ends_and_members_of_joined_conditions(rows: list[list[bool]]) -> None:
    """`a & ~b | ~a` over the keys, of two heads that tables tell apart."""
    length = min(map(len, rows))
    a, b = (torch.tensor(row[:length], dtype=torch.bool) for row in rows)
    table, other = ma.table(torch.stack([a, b])), ma.table(b)
    first, second = table[ma.head, kv_idx], other[kv_idx]
    form = bound((first & ~second) | ~first)
    indices = {"batch": torch.zeros(1, dtype=torch.int64), "head": torch.arange(2)}
    env = Environment(indices, form.values)
    node, lengths = form.structure.mask, (5, length)
    first_of, last_of = ends(node, "kv_idx", lengths, env)
    counted = position_set(node, "kv_idx", lengths, env).counts
    for head, row in enumerate((a, b)):
        members = ((row & ~b) | ~row).nonzero()[:, 0].tolist()
        assert int(first_of[0, head]) == min(members, default=length)
        assert int(last_of[0, head]) == max(members, default=-1)
        assert int(counted[0, head, -1]) == len(members)


def test_sets_that_follow_the_queries_are_made_for_each_number_of_them() -> None:
    """Whether a later query is flagged decides a key; with fewer queries there may be none."""
    flags = torch.zeros(32, dtype=torch.bool)
    flags[[2, 24, 27]] = True
    mask = ma.table(flags)[q_idx] & chunked(3) & (q_idx >= kv_idx + 2)
    for q_len in (16, 32, 20, 32):
        assert_labels_exact(mask, q_len, 32, block=(4, 4))


RESTS = {
    "members": lambda own, other: own % 2 == 0,
    "equal entries": lambda own, other: own == other,
    "different entries": lambda own, other: own != other,
    "ordered entries": lambda own, other: own <= other,
}


@pytest.mark.parametrize("rest", RESTS)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-4, 20), min_size=16, max_size=16), st.integers(0, 1 << 16))
def test_tiles_of_keys_whose_limits_no_query_meets(rest: str, limits: list[int], seed: int) -> None:
    """Limits below 0 leave whole tiles of keys without a query, whatever else a query must be."""
    draw = torch.Generator().manual_seed(seed)
    entries = torch.randint(0, 3, (2, 16), generator=draw)
    limit = torch.tensor(limits)
    limit[4:8] = -1
    other = RESTS[rest](ma.table(entries[0])[q_idx], ma.table(entries[1])[kv_idx])
    assert_labels_exact((q_idx <= ma.table(limit)[kv_idx]) & other, 16, block=(4, 4))
    assert_labels_exact((q_idx <= ma.table(limit)[kv_idx]) | other, 16, block=(4, 4))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_morton_order_sorts_interleaved_bits(extents: list[int]) -> None:
    places = _morton(extents)
    assert len(set(zip(*(place.tolist() for place in places), strict=True))) == len(places[0])
    codes = [
        sum(
            (int(x) >> bit & 1) << (bit * len(extents) + axis)
            for bit in range(4)
            for axis, x in enumerate(reversed(point))
        )
        for point in zip(*places, strict=True)
    ]
    assert codes == sorted(codes)


@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 40), st.floats(0, 1), st.integers(0, 99)
)
def test_members_that_are_searched_for(
    batch: int, heads: int, length: int, share: float, seed: int
) -> None:
    """The list of members answers as the tables of all positions do, in every row."""
    torch.manual_seed(seed)
    kept = torch.rand(batch, heads, length) < share
    listed, tabled = PositionSet(kept), PositionSet(kept)
    assert tabled.counts.shape == (batch, heads, length + 1)  # made: nothing is searched for
    at = (torch.arange(batch).view(-1, 1, 1), torch.arange(heads).view(1, -1, 1))
    x = torch.randint(-2, length + 3, (1, 1, 9))
    y = (x + torch.randint(-1, 9, x.shape)).clamp(max=length + 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_SEARCHES", 0)
        for name, places in (("first_from", (x,)), ("last_until", (x,)), ("between", (x, y))):
            found, wanted = (getattr(one, name)(at, *places) for one in (listed, tabled))
            assert torch.equal(found, wanted), name
    assert kept.numel() == 0 or "counts" not in listed.__dict__, "tables were made"


@settings(max_examples=60, deadline=None)
@given(masks(depth=2), st.integers(1, 7))
def test_strips_of_positions_say_the_same(case: Case, strip: int) -> None:
    """Labels do not depend on how many positions are evaluated together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_STRIP", strip)
        patch.setattr(sets, "_SEARCHES", 0)
        assert_labels_exact(case.mask, 24, 21, block=(4, 3), batch=BATCH, heads=HEADS)


def test_what_is_made_of_a_tensor_ends_with_it() -> None:
    """Slices and lists that are remembered do not keep the tensor they are of."""
    ids, flags = torch.arange(512) // 5, torch.rand(512) < 0.5
    ends = [weakref.ref(ids), weakref.ref(flags)]
    mask = document(ids) & (q_idx >= kv_idx) & ma.table(flags)[kv_idx]
    mask.segments(512, block=8)
    mask.blocks(512, block=8)
    del mask, ids, flags
    gc.collect()
    assert [end() for end in ends] == [None, None]
