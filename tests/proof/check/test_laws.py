"""The laws that certificates rest on, by brute force and by z3; and the search that uses them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskalg.formula.laws import All, Any_, Condition, NotNegative, equal
from maskalg.proof.check.refutation import DEEPEST, refutation, refuted
from maskalg.proof.check.simplex import Simplex, TooLarge
from maskalg.schedule.intervals.steps import step_tables
from maskalg.schedule.positions.sets import PositionSet

numbers = st.integers(-7, 7)


def boxed_distances(
    queries: tuple[int, int], keys: tuple[int, int], limits: tuple[int, int]
) -> tuple[int, int]:
    """The distances q - k of a box, both ends included; none where the first exceeds the last.

    Every number between the two is the distance of some pair in the box, provided that neither
    interval is empty. So a remainder occurs in the box if the first number that has it, from the
    least distance on, is not above the greatest.
    """
    return max(queries[0] - keys[1], limits[0]), min(queries[1] - keys[0], limits[1])


@given(numbers, numbers, numbers, numbers, numbers, numbers, st.integers(1, 6), st.integers(-9, 9))
def test_distances_in_a_box(a: int, b: int, c: int, d: int, e: int, f: int, m: int, r: int) -> None:
    """A remainder occurs in a box iff its first number from the least distance on is not above."""
    queries, keys = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    low, high = boxed_distances(queries, keys, (e, f))
    pairs = product(range(queries[0], queries[1] + 1), range(keys[0], keys[1] + 1))
    distances = {q - k for q, k in pairs if e <= q - k <= f}
    assert distances == set(range(low, high + 1))
    assert any((x - r) % m == 0 for x in distances) == (low + (r - low) % m <= high)


def test_distances_in_a_box_for_all_values() -> None:
    z3 = pytest.importorskip("z3")
    q, k, a, b, c, d, x = z3.Ints("q k a b c d x")
    inside = z3.And(a <= q, q <= b, c <= k, k <= d, q - k == x)
    some = z3.And(a <= b, c <= d, a - d <= x, x <= b - c)
    solver = z3.Solver()
    solver.add(some, z3.ForAll([q, k], z3.Not(inside)))
    assert solver.check() == z3.unsat


def test_equal_remainders_for_all_values() -> None:
    """a mod c = b mod c iff c divides a - b; a mod c = r iff c divides a - r and 0 <= r < c."""
    z3 = pytest.importorskip("z3")
    for c in (1, 2, 3, 7, 64):
        a, b, r = z3.Ints("a b r")
        for left, right in (
            (a % c == b % c, (a - b) % c == 0),
            (a % c == r, z3.And((a - r) % c == 0, r >= 0, r < c)),
            ((a - b) % c == 0, (b - a) % c == 0),
        ):
            solver = z3.Solver()
            solver.add(left != right)
            assert solver.check() == z3.unsat


@given(st.integers(-40, 40), st.integers(-40, 40), st.integers(1, 9), st.integers(-9, 9))
def test_equal_remainders(a: int, b: int, c: int, r: int) -> None:
    assert (a % c == b % c) == ((a - b) % c == 0)
    assert (a % c == r) == ((a - r) % c == 0 and 0 <= r < c)


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_members_of_sets(kept: list[bool]) -> None:
    members = PositionSet(torch.tensor(kept).view(1, 1, -1))
    at = (torch.tensor(0), torch.tensor(0))
    for q1, x in product(range(len(kept)), range(-3, len(kept) + 4)):
        following = int(members.first_from(at, torch.tensor(x)))
        before = int(members.last_until(at, torch.tensor(x)))
        assert following >= x or following > q1
        assert before <= x or before < 0
        assert following > q1 or kept[following]
        assert before < 0 or kept[before]
        for z in range(-3, len(kept) + 4):
            earlier = int(members.last_until(at, torch.tensor(z)))
            assert following > q1 or following > z or earlier >= following
            assert earlier < 0 or x > earlier or earlier >= following
        for y in range(q1 + 1):
            if kept[y]:
                assert y < x or following <= y
                assert y > x or before >= y


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.data())
def test_tables_of_documents(entries: list[int], data: st.DataObject) -> None:
    q_ids = torch.tensor(entries)
    own = data.draw(st.booleans())
    others = st.lists(st.integers(0, 3), min_size=1, max_size=9)
    kv_ids = q_ids if own else torch.tensor(data.draw(others))
    tables = step_tables(q_ids, kv_ids)
    names = ("first", "last", "start", "end")
    first, last, start, end = (tables.named(name).reshape(-1).tolist() for name in names)
    back = [tables.named(f"{name}'").reshape(-1).tolist() for name in ("first", "last")]
    for x, y in product(range(len(q_ids)), range(len(kv_ids))):
        assert q_ids[x] != kv_ids[y] or first[x] <= y <= last[x]
        assert q_ids[x] == kv_ids[y] or y < start[x] or end[x] < y
        assert (first[x] <= y) == (x <= back[1][y])
        assert (last[x] >= y) == (x >= back[0][y])
        if own:
            assert first[x] <= x <= last[x] and start[x] <= x <= end[x]
        if tables.contiguous():
            assert (first[x], last[x]) == (start[x], end[x])
    assert all(table == sorted(table) for table in (first, last, start, end))


# --- the search ----------------------------------------------------------------------------------


@given(st.data())
def test_systems_against_brute_force(data: st.DataObject) -> None:
    """A system that is refuted has no solution, and none of this size is too large."""
    unknowns = sp.symbols("x y z", real=True)

    def inequality() -> Condition:
        a, b, c = (data.draw(st.integers(-2, 2)) for _ in range(3))
        x, y, z = unknowns
        return NotNegative(a * x + b * y + c * z + data.draw(st.integers(-3, 3)))

    conditions: list[Condition] = [NotNegative(x) for x in unknowns]
    conditions += [NotNegative(3 - x) for x in unknowns]
    for _ in range(data.draw(st.integers(1, 4))):
        parts = tuple(inequality() for _ in range(data.draw(st.integers(1, 3))))
        conditions.append(data.draw(st.sampled_from((All, Any_)))(parts))

    def holds(condition: Condition, at: dict[Any, int]) -> bool:
        if isinstance(condition, NotNegative):
            return bool(condition.expression.subs(at) >= 0)
        joined = all if isinstance(condition, All) else any
        return joined(holds(part, at) for part in condition.parts)

    solvable = any(
        all(holds(condition, dict(zip(unknowns, at, strict=True))) for condition in conditions[6:])
        for at in product(range(4), repeat=3)
    )
    verdict = refutation(conditions)
    assert verdict == "open" if solvable else verdict != "too large"


def test_numbers_between_two_integers() -> None:
    x, y = sp.symbols("x y", real=True)
    assert refuted([equal(2 * x - 2 * y, 1)])
    assert refuted([equal(2 * x, y), equal(2 * x, 7 - y)])


def test_steps_are_bounded() -> None:
    """Pigeons: no solution, and too many cases to see it."""
    sitting = [[sp.Symbol(f"p{i}_{j}", real=True) for j in range(7)] for i in range(8)]
    conditions: list[Condition] = []
    for pigeon in sitting:
        conditions.append(Any_(tuple(NotNegative(p - 1) for p in pigeon)))
    for hole in zip(*sitting, strict=True):
        for i, one in enumerate(hole):
            conditions += [Any_((NotNegative(-one), NotNegative(-two))) for two in hole[:i]]
    assert refutation(conditions) == "too large"


def test_depth_is_bounded() -> None:
    """Choices below choices do not exhaust Python's stack, which the caller has a share of."""
    pairs = [sp.symbols(f"a{i} b{i}", real=True) for i in range(2 * DEEPEST)]
    conditions = [Any_((NotNegative(a - 1), NotNegative(b - 1))) for a, b in pairs]
    assert refutation(conditions) == "too large"
    assert refutation(conditions[: DEEPEST // 2]) == "open"


def test_what_is_no_integer_polynomial_is_refused() -> None:
    """Coefficients were cut to integers: x - 3 >= 0 for 3 x / 2 - 3 >= 0, which x = 2 satisfies."""
    x = sp.Symbol("x", real=True)
    with pytest.raises(ValueError, match="coefficients that are not integers"):
        refuted([NotNegative(sp.Rational(3, 2) * x - 3), NotNegative(2 - x)])


def test_a_part_that_never_holds_leaves_its_siblings() -> None:
    x = sp.Symbol("x", real=True)
    never, always = NotNegative(sp.Integer(-1)), NotNegative(sp.Integer(0))
    assert refutation([Any_((never, NotNegative(x)))]) == "open"
    assert refutation([Any_((All((never, NotNegative(x))), NotNegative(x - 1)))]) == "open"
    assert refutation([Any_((always, NotNegative(-x - 1))), NotNegative(x)]) == "open"
    assert refutation([Any_((never, never))]) == "refuted"
    assert refutation([]) == "open"
    assert refutation([NotNegative(x), Any_((never, NotNegative(-x - 1)))]) == "refuted"


def test_pivots_are_bounded() -> None:
    simplex = Simplex(budget=0)
    form = simplex.form({"x": 1, "y": -1})
    simplex.require(form, 1)
    with pytest.raises(TooLarge):
        simplex.conflict()


def test_inequalities_are_switched_off_again() -> None:
    simplex = Simplex(budget=100)
    gap, back = simplex.form({"x": 1, "y": -1}), simplex.form({"x": -1, "y": 1})
    simplex.require(gap, 1)
    simplex.require(back, 0)
    assert sorted(simplex.conflict() or []) == [(gap, 1), (back, 0)]
    simplex.release(back, 0)
    assert simplex.conflict() is None and simplex.level(gap) >= 1
