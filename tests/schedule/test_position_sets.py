"""Sets of positions: members and ends against a list; what is remembered fits the call."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import chunked, kv_idx, q_idx
from maskalg.engine.evaluate import Environment
from maskalg.engine.normal_form import bound
from maskalg.schedule.positions.sets import ends, position_set, set_of
from maskalg.testing import assert_labels_exact
from maskalg.values.masks.canvases.neighborhood import _morton

ROWS = st.lists(st.booleans(), max_size=12)


@given(ROWS, st.integers(-2, 14), st.integers(-2, 14))
def test_a_set_is_its_members(row: list[bool], low: int, high: int) -> None:
    members = [place for place, kept in enumerate(row) if kept]
    found = set_of(torch.tensor(row, dtype=torch.bool).view(1, 1, -1))
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
