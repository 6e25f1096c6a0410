"""Sign proofs: plain polynomials are SymPy's, what is proved holds, and what must be proved is."""

from __future__ import annotations

import itertools
import random

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from maskalg.formula import nodes
from maskalg.formula.parameters import Scalar, Slot
from maskalg.proof import signs as module
from maskalg.proof.signs import Atoms, OverBudget, Signs, add_to, combined, constant, product
from maskalg.proof.symbols import FloorDiv, Symbols, expanded, k, q, q0, q1

LOWS = {"a": 0, "b": 1, "c": 3, "d": -2}  # and `free`, without a bound


def declared() -> tuple[Symbols, dict[str, sp.Symbol]]:
    symbols = Symbols()
    found = {}
    for place, (name, low) in enumerate([*LOWS.items(), ("free", None)]):
        slot = Slot(place, name, Scalar(name, 5, low))
        found[name] = symbols.to_sympy(nodes.scalar(slot))
    return symbols, found


SYMBOLS, NAMED = declared()
A, B, C, D, FREE = NAMED.values()

leaves = st.one_of(
    st.integers(-4, 4).map(sp.Integer), st.sampled_from((q0, q1, k, *NAMED.values()))
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.tuples(st.sampled_from((sp.Integer(2), sp.Integer(-1), B, C)), inner).map(
            lambda pair: pair[0] * pair[1]
        ),
        st.tuples(inner, st.sampled_from((sp.Integer(3), B, C))).map(lambda pair: FloorDiv(*pair)),
    ),
    max_leaves=8,
)


def value(expression: sp.Expr, at: dict[sp.Symbol, int]) -> int:
    if isinstance(expression, FloorDiv):
        x, c = (value(arg, at) for arg in expression.args)
        return x // c
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return at[expression]
    parts = [value(arg, at) for arg in expression.args]
    if expression.is_Add:
        return sum(parts)
    assert expression.is_Mul or expression.is_Pow
    result = parts[0]
    for part in parts[1:]:
        result = result * part if expression.is_Mul else result**part
    return result


def points(count: int) -> list[dict[sp.Symbol, int]]:
    """Values within the declared bounds: the corners, where proofs go wrong, and random ones."""
    source = random.Random(3)
    found = []
    for corner in range(count):
        span = 1 if corner < count // 2 else 9
        first = source.randint(0, span)
        at = {q0: first, q1: first + source.randint(0, span), k: source.randint(0, span)}
        for name, low in LOWS.items():
            at[NAMED[name]] = low + source.randint(0, span)
        at[FREE] = source.randint(-9, 9)
        found.append(at)
    return found


POINTS = points(60)


@given(expressions)
def test_what_is_proved_holds(expression: sp.Expr) -> None:
    prover = Signs(SYMBOLS)
    values = [value(expression, at) for at in POINTS]
    if prover.nonnegative(expression):
        assert min(values) >= 0
    if prover.positive(expression):
        assert min(values) >= 1
    if prover.negative(expression):
        assert max(values) <= -1


@given(expressions, expressions)
def test_pairs_are_their_difference_and_their_sum(left: sp.Expr, right: sp.Expr) -> None:
    prover = Signs(SYMBOLS)
    assert prover.ordered(left, right) == prover.nonnegative(sp.expand(right - left))
    assert prover.ordered(left, right) == prover.ordered(left, right), "asked again"
    assert prover.opposed(left, right) == prover.negative(sp.expand(left + right))


@given(expressions)
def test_expanding_is_what_sympy_does(expression: sp.Expr) -> None:
    assert expanded(expression) == sp.expand(expression)


@given(expressions, expressions)
def test_polynomials_add_and_multiply_as_sympy_does(left: sp.Expr, right: sp.Expr) -> None:
    atoms = Atoms()
    a, b = atoms.read(left), atoms.read(right)
    assert combined([(2, a), (-3, b)]) == atoms.read(sp.expand(2 * left - 3 * right))
    assert product(a, b) == atoms.read(sp.expand(left * right))
    assert 0 not in a.values() and 0 not in product(a, b).values()
    assert combined([(1, a), (-1, a)]) == {}


def test_a_polynomial_that_was_read_is_not_changed() -> None:
    atoms = Atoms()
    before = dict(atoms.read(q + 2 * k))
    total = combined([(1, atoms.read(q + 2 * k))])
    add_to(total, constant(5))
    assert atoms.read(q + 2 * k) == before


@pytest.mark.parametrize(
    "expression",
    [
        q1 - q0,
        B - 1,
        D + 2,
        B * C - 3 * B,
        (B - 1) * (C - 3),
        FloorDiv(q1, C) - FloorDiv(q0, C),
        C * FloorDiv(q0, C) - q0 + C - 1,
        q0 - C * FloorDiv(q0, C),
        C * FloorDiv(q1, C) + C - 1 - q0,
        FloorDiv(q0 + A, B),
    ],
    ids=str,
)
def test_proved(expression: sp.Expr) -> None:
    assert Signs(SYMBOLS).nonnegative(sp.expand(expression))
    assert Signs(SYMBOLS).negative(sp.expand(-expression - 1))


@pytest.mark.parametrize(
    "expression",
    [
        *(q0 - q1, q0 - k, A - 1, D + 1, FREE, FREE * FREE - 1, B * C - 4),
        FloorDiv(FREE, C),
        C * FloorDiv(q0, C) - q0,
        q0 - C * FloorDiv(q0, C) - 1,
        C * FloorDiv(q0, C) + C - 2 - q0,
    ],
    ids=str,
)
def test_not_proved(expression: sp.Expr) -> None:
    assert not Signs(SYMBOLS).nonnegative(expression)
    assert not Signs(SYMBOLS).negative(expression)


def test_the_budget_counts_proofs_and_starts_anew_for_each_side() -> None:
    prover = Signs(SYMBOLS)
    with pytest.raises(OverBudget, match="more than 1000 steps"):
        for count in itertools.count(2):
            prover.nonnegative(count * q - k)
    prover.restart()
    assert prover.nonnegative(q + k)
    assert module.STEP_BUDGET == 1000
