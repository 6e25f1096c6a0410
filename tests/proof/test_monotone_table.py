"""Each inverse in the table of monotone functions is needed: off by one, brute force finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy as sp
import torch

from maskalg import Mask, block_causal, causal, chunked, document, q_idx, sliding, table
from maskalg.engine.recent import Recent
from maskalg.proof import proof, signs, symbols
from maskalg.proof.symbols import FloorDiv, Step
from maskalg.schedule.intervals.steps import step_tables
from maskalg.schedule.positions.sets import PositionSet
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact

Inverse = Callable[[Any, Any], tuple[Any, Any]]

NAMES = ("floor", "first", "last", "start", "end", "next", "previous")
IDS = torch.tensor([0] * 5 + [1] * 6 + [2] * 1 + [3] * 9 + [4] * 11)
KEPT = torch.tensor([i % 7 == 2 or i in (12, 13, 29) for i in range(32)])
FLAGS = table(KEPT, "flags")

MASKS: dict[str, tuple[Mask, ...]] = {
    "floor": (chunked(5), block_causal(5) & sliding(9)),
    "first": (document(IDS) & sliding(4), document(IDS) & (q_idx >= 9)),
    "last": (document(IDS) & sliding(4), document(IDS) & causal.shift(q=2)),
    "start": (document(IDS) | sliding(4), ~document(IDS) & causal),
    "end": (document(IDS) | sliding(4), ~document(IDS) & causal.shift(q=2)),
    "next": (causal & sliding(6) & FLAGS[q_idx], causal | FLAGS[q_idx]),
}


def name_of(function: Any) -> str:
    return "floor" if isinstance(function, FloorDiv) else str(function.table)


def mutated(inverse: Inverse, name: str, by: int) -> Inverse:
    """The inverse with its bound moved, for one function of the table."""

    def moved(function: Any, n: Any) -> tuple[Any, Any]:
        x, bound = inverse(function, n)
        return x, bound + by if name_of(function) == name else bound

    return moved


def values() -> Iterator[tuple[Any, Callable[[int], int]]]:
    """Each function of the table, as the proof writes it and as numbers."""
    x = sp.Symbol("x", integer=True)
    yield FloorDiv(x, sp.Integer(5)), lambda at: at // 5
    tables = step_tables(IDS, IDS)
    for name in ("first", "last", "start", "end"):
        entries = tables.named(name).tolist()
        step = Step(sp.Symbol(name), sp.Symbol("ids"), sp.Integer(0), x)
        yield step, lambda at, entries=entries: entries[at]  # type: ignore[misc]
    for name in ("next", "previous"):
        step = Step(sp.Symbol(name), sp.Symbol("set"), sp.Integer(0), x)
        yield step, lambda at, name=name: member(name, at)  # type: ignore[misc]


def member(name: str, at: int) -> int:
    """The next or previous member of `KEPT`, from its definition."""
    members = [i for i, kept in enumerate(KEPT.tolist()) if kept]
    if name == "next":
        return min((i for i in members if i >= at), default=len(KEPT))
    return max((i for i in members if i <= at), default=-1)


def number(bound: Any) -> int:
    """A bound without symbols as a number, its tables looked up."""
    tables = step_tables(IDS, IDS)
    for step in bound.atoms(Step):
        at = int(step.position)
        known = step.table in ("next", "previous")
        found = member(step.table, at) if known else int(tables.named(step.table)[at])
        bound = bound.subs(step, found)
    return int(bound)


def laws_hold(lower: Inverse, upper: Inverse, name: str) -> bool:
    """f(x) >= n iff x >= lower(n), and f(x) <= n iff x <= upper(n), for all x and n inside."""
    for function, value in values():
        if name_of(function) != name:
            continue
        for n in range(1, 5 if name == "floor" else len(IDS) - 1):
            least, most = (number(side(function, sp.Integer(n))[1]) for side in (lower, upper))
            for x in range(len(IDS)):
                if (value(x) >= n) != (x >= least) or (value(x) <= n) != (x <= most):
                    return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_the_table_holds_and_no_other_would(name: str) -> None:
    lower, upper = symbols.lower, symbols.upper
    assert laws_hold(lower, upper, name)
    for by in (-1, 1):
        assert not laws_hold(mutated(lower, name, by), upper, name)
        assert not laws_hold(lower, mutated(upper, name, by), name)


def wrong(masks: tuple[Mask, ...]) -> bool:
    """Whether brute force finds a wrong label or key among the masks."""
    for mask in masks:
        for block in (3, 4, 8):
            try:
                assert_labels_exact(mask, 31, block=block)
                assert_closed_forms_sound(mask, 31, block_q=block)
            except AssertionError:
                return True
    return False


@pytest.mark.parametrize("by", (-1, 1))
@pytest.mark.parametrize(
    ("name", "side"),
    # The sides that eliminating an index asks for; the laws above hold the others.
    [
        ("floor", "lower"),
        ("floor", "upper"),
        ("first", "upper"),
        ("last", "lower"),
        ("start", "lower"),
        ("end", "upper"),
        ("next", "upper"),
    ],
)
def test_masks_show_a_wrong_inverse(
    name: str, side: str, by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "_CACHE", Recent(64))
    assert not wrong(MASKS[name])
    monkeypatch.setattr(proof, "_CACHE", Recent(64))
    right = getattr(signs, side)
    monkeypatch.setattr(signs, side, mutated(right, name, by))
    assert wrong(MASKS[name])


def test_sets_are_what_they_say() -> None:
    found = PositionSet(KEPT[None, None])
    at = (torch.tensor(0), torch.tensor(0))
    places = torch.arange(-3, 36)
    assert found.first_from(at, places).tolist() == [member("next", x) for x in places.tolist()]
    assert found.last_until(at, places).tolist() == [member("previous", x) for x in places.tolist()]
    for low in range(-2, 34):
        high = torch.arange(low, 35)
        wanted = [sum(KEPT.tolist()[max(low, 0) : max(h + 1, 0)]) for h in high.tolist()]
        assert found.between(at, torch.full_like(high, low), high).tolist() == wanted
