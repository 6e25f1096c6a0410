"""Our own prover of linear claims: what it proves is true, and z3 says so too."""

from __future__ import annotations

import itertools
import operator
import random

import pytest

import maskalg as ma
from maskalg.errors.kinds import MissingPackageError
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier import linear, report, solve, terms
from maskalg.verifier.terms import Term

NAMES = ("a", "b", "c")
ENDS = -3, 4
BOX = [
    end
    for x in map(terms.variable, NAMES)
    for end in (
        x >= ENDS[0],
        ENDS[1] >= x,
    )
]


def drawn_integer(random_: random.Random, depth: int) -> Term:
    if not depth:
        number = terms.number(random_.randint(-5, 5))
        return random_.choice([number, *map(terms.variable, NAMES)])
    x, y = (drawn_integer(random_, depth - 1) for _ in range(2))
    by = random_.choice([terms.number(random_.randint(1, 4)), terms.variable("c")])
    return random_.choice([
        lambda: x + y,
        lambda: x - y,
        lambda: random_.randint(-3, 3) * x,
        lambda: x * y,
        lambda: x // by,
        lambda: x % by,
        lambda: terms.least(x, y),
        lambda: terms.most(x, y),
        lambda: terms.sign_of(x),
        lambda: terms.choice(drawn_condition(random_, 0), x, y),
        lambda: terms.wrapped(x, 3, random_.random() < 0.5),
    ])()  # fmt: skip


def drawn_condition(random_: random.Random, depth: int) -> Term:
    x, y = (drawn_integer(random_, random_.randint(0, 2)) for _ in range(2))
    if not depth:
        compared = operator.ge, operator.gt, terms.equal
        by = terms.number(random_.randint(1, 4))
        return random_.choice([*[lambda f=f: f(x, y) for f in compared],
                               lambda: terms.divides(by, x)])()  # fmt: skip
    left, right = (drawn_condition(random_, depth - 1) for _ in range(2))
    return random_.choice([
        lambda: left & right, lambda: left | right,
        lambda: terms.same(left, right), lambda: ~left,
    ])()  # fmt: skip


def holds(condition: Term, values: tuple[int, ...]) -> bool:
    named = dict(zip(NAMES, values, strict=True))
    return bool(terms.computed(condition, named, lambda *_: 0, lambda *_: 0))


def test_what_it_proves_holds_at_every_number():
    drawn, proved = random.Random(5), 0
    every = list(itertools.product(range(ENDS[0], ENDS[1] + 1), repeat=len(NAMES)))
    positive = terms.variable("c") >= 1
    for _ in range(250):
        given, claim = drawn_condition(drawn, 1), drawn_condition(drawn, drawn.randint(0, 2))
        known = [*BOX, positive, given]
        denied = [[*premises, ~part] for premises, part in solve.parts_of(claim)]
        if not linear.is_refuted(known, denied):
            continue
        proved += 1
        for values in every:
            if values[2] >= 1 and holds(given, values):
                assert holds(claim, values), (given, claim, values)
    assert proved > 30


@pytest.mark.parametrize("name", list(CATALOGUE)[4::24])
def test_z3_proves_what_it_proves(name, monkeypatch):
    pytest.importorskip("z3")
    agreed(monkeypatch, CATALOGUE[name].mask)


@pytest.mark.parametrize("seed", (0, 2, 3))
def test_z3_proves_what_it_proves_of_compositions(seed, monkeypatch):
    pytest.importorskip("z3")
    drawn = random.Random(seed)
    simple = [
        ma.causal, ma.sliding(5), ma.chunked(3), ma.prefix(4), ma.q_idx % 3 >= ma.kv_idx // 2,
        ma.q_idx + ma.kv_idx >= 7,
    ]  # fmt: skip
    mask = drawn.choice(simple)
    for _ in range(3):
        other = drawn.choice(simple)
        mask = drawn.choice([mask & other, mask | other, mask & ~other])
    agreed(monkeypatch, mask)


def agreed(monkeypatch: pytest.MonkeyPatch, mask: ma.Mask) -> None:
    """Asks z3 each question that our own prover decides."""
    own, asked = linear.is_refuted, []

    def both(given: list[Term], denied: list[list[Term]], *budget: object) -> bool:
        found = own(given, denied, *budget)
        if found:
            claim = ~terms.either(*[terms.both(*every) for every in denied])
            asked.append((given, claim))
        return found

    monkeypatch.setattr(linear, "is_refuted", both)
    monkeypatch.setattr(report, "of_installed_kernels", lambda cpu: ())
    assert ma.verify(mask, targets=["ptx", "cpu"]).whole
    assert asked or mask is CATALOGUE["everything"].mask
    for given, claim in dict.fromkeys((tuple(given), claim) for given, claim in asked):
        outcome, _, model = solve._by_z3(given, claim, 10_000)
        assert outcome == "proved", (outcome, claim, model)


def without_z3(monkeypatch: pytest.MonkeyPatch, mask: ma.Mask) -> report.Verification:
    def missing() -> None:
        raise MissingPackageError("no z3")

    monkeypatch.setattr(solve, "solver", missing)
    monkeypatch.setattr(report, "of_installed_kernels", lambda cpu: ())
    return ma.verify(mask, targets=["ptx", "triton", "cpu", "torch"])


@pytest.mark.parametrize("name", ["causal", "causal sliding", "prefix", "causal documents"])
def test_linear_masks_are_proved_without_z3(name, monkeypatch):
    found = without_z3(monkeypatch, CATALOGUE[name].mask)
    assert found.whole, [claim for claim in found.claims if not claim.holds]
    assert not any(", z3" in claim.by for claim in found.claims)
    assert any(solve.OWN in claim.by for claim in found.claims)


def test_what_is_not_decided_without_z3_is_told(monkeypatch):
    found = without_z3(monkeypatch, ma.q_idx * ma.q_idx >= ma.kv_idx * ma.q_idx)
    left = [claim for claim in found.claims if not claim.holds]
    assert left
    assert all(solve.NEITHER in claim.by or claim.kind == "runs" for claim in left), left
