"""Oracles of the certificates of digits: z3, and the numbers that formulas have."""

from __future__ import annotations

import random
from functools import cache
from math import prod
from typing import Any, cast

import pytest
import sympy as sp

from maskalg import causal, neighborhood, q_idx, tiled_neighborhood
from maskalg.formula import nodes
from maskalg.formula.laws import All, Condition, NotNegative
from maskalg.formula.nodes import Node
from maskalg.formula.parameters import Slot
from maskalg.proof.check.cubes import cubes
from maskalg.proof.check.digit_certificate import at_one_query, pair_formula, span_formula
from maskalg.proof.check.encoding import Encoder
from maskalg.proof.digits.forms import AxisSpan, DigitForms, Split
from maskalg.proof.symbols import ROW_FIRST, ROW_LAST
from maskalg.testing.catalogue import CATALOGUE
from tests.proof.check.z3_formulas import Z3

IMAGE = neighborhood((4, 6), (3, 2))
MASKS = {
    "image": IMAGE,
    "causal image": IMAGE & causal,
    "heads": CATALOGUE["heads within frames and across them"].mask,
}


def forms_of(name: str) -> DigitForms:
    forms = MASKS[name].prove().forms.digits
    assert forms is not None
    return forms


@pytest.mark.parametrize("name", MASKS)
def test_z3_agrees_about_every_axis(name: str) -> None:
    """For all values of the parameters: an interval keeps what some coordinate in it keeps."""
    for part in forms_of(name).parts:
        for clause in part.touched + part.unfull:
            for _, spans in clause.axes:
                assert _of_axis(spans) == ("unsat", "unsat")


def _of_axis(spans: tuple[AxisSpan, ...]) -> tuple[str, str]:
    z = Z3()
    q, k, q0, q1 = (z.of(node) for node in (nodes.Q, nodes.K, ROW_FIRST, ROW_LAST))
    whole, alone = (
        z.of(f) for f in (nodes.disjunction(*map(span_formula, spans)), at_one_query(spans))
    )
    known = [q0 >= 0, q0 <= q1, k >= 0]
    lost = z.answer(*known, q0 <= q, q <= q1, alone, z.z3.Not(whole))
    unmet = z.z3.ForAll([q], z.z3.Not(z.z3.And(q0 <= q, q <= q1, alone)))
    return lost, z.answer(*known, whole, unmet)


def test_z3_refutes_axes_that_are_others() -> None:
    """The control: narrower spans lose coordinates, and wider ones have some that are not met."""
    ((_, spans), *_) = forms_of("heads").parts[0].touched[0].axes
    (span,) = spans
    by = nodes.add(span.lows[0], nodes.const(1)), nodes.add(span.lows[0], nodes.const(-1))
    narrower, wider = (AxisSpan((low,), span.highs, span.guards) for low in by)
    for changed in (narrower, wider):
        z = Z3()
        q, k, q0, q1 = (z.of(node) for node in (nodes.Q, nodes.K, ROW_FIRST, ROW_LAST))
        alone, whole = z.of(at_one_query(spans)), z.of(span_formula(changed))
        known = [q0 >= 0, q0 <= q1, k >= 0]
        if changed is narrower:
            assert z.answer(*known, q0 <= q, q <= q1, alone, z.z3.Not(whole)) == "sat"
        else:
            unmet = z.z3.ForAll([q], z.z3.Not(z.z3.And(q0 <= q, q <= q1, alone)))
            assert z.answer(*known, whole, unmet) == "sat"


@pytest.mark.parametrize("name", MASKS)
def test_z3_agrees_about_every_pair(name: str) -> None:
    """For all windows and heights, with numbers for what positions are divided by."""
    proof, forms = MASKS[name].prove(), forms_of(name)
    numbers: dict[Node, Node] = {}
    for i, part in enumerate(forms.parts):
        assert isinstance(part.tree, Split)
        numbers[part.tree.radix] = nodes.const(5 + 2 * i)
    for holds in (True, False):
        z = Z3()
        q, k = z.of(nodes.Q), z.of(nodes.K)
        pairs = [
            z.of(nodes.substitute(pair_formula(part, clause), numbers.get))
            for part in forms.parts
            for clause in (part.touched if holds else part.unfull)
        ]
        mask = z.of(nodes.substitute(proof.mask, numbers.get))
        side = mask if holds else z.z3.Not(mask)
        assert z.answer(q >= 0, k >= 0, side != z.z3.Or(*pairs)) == "unsat"
        assert z.answer(q >= 0, k >= 0, side != z.z3.Or(*pairs[1:])) == "sat"


# --- the facts of systems ------------------------------------------------------------------------


class Recorded(Encoder):
    """An encoder that remembers the formula of every unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.formulas: dict[Any, Node] = {}

    def _unknown(self, node: Node) -> Any:
        symbol = super()._unknown(node)
        self.formulas[symbol] = node
        return symbol

    def numbers(self, at: dict[str, int]) -> dict[Any, int]:
        """The number that each unknown is for these indices and parameters."""
        found = {symbol: int(value(node, at)) for symbol, node in self.formulas.items()}
        for quotient, x, c in self._quotients:
            found[quotient] = at_numbers(x, found) // at_numbers(c, found)
        for key, symbol in self._unknowns.items():
            if " divides " in key:
                c, difference = (self._read(text, found) for text in key.split(" divides "))
                found[symbol] = int(difference % c == 0)
        return found

    def _read(self, text: str, numbers: dict[Any, int]) -> int:
        """The number of a polynomial that is written in unknowns."""
        return at_numbers(sp.sympify(text, {str(symbol): symbol for symbol in numbers}), numbers)


def value(node: Node, at: dict[str, int]) -> int:
    """A formula by Python's own arithmetic."""
    if node.op == "index":
        return at[cast(str, node.data)]
    if node.op == "const":
        return cast(int, node.data)
    if node.op == "scalar":
        return at[cast(Slot, node.own[0]).text]
    args = [value(arg, at) for arg in node.args]
    rules: dict[str, Any] = {
        "add": lambda *a: sum(a),
        "mul": lambda *a: prod(a),
        "floordiv": lambda x, c: x // c,
        "mod": lambda x, c: x % c,
        "max": lambda *a: max(a),
        "min": lambda *a: min(a),
        "where": lambda c, a, b: a if c else b,
        "ge": lambda a, b: a >= b,
        "eq": lambda a, b: a == b,
        "and": lambda *a: all(a),
        "or": lambda *a: any(a),
        "not": lambda a: not a,
    }
    return cast(int, rules[node.op](*args))


@cache
def _terms(polynomial: Any) -> list[tuple[int, list[tuple[Any, int]]]]:
    terms = sp.sympify(polynomial).expand().as_coefficients_dict()
    return [
        (int(c), [(b, int(e)) for b, e in m.as_powers_dict().items() if b != 1])
        for m, c in terms.items()
    ]


def at_numbers(polynomial: Any, numbers: dict[Any, int]) -> int:
    return sum(c * prod(numbers[b] ** e for b, e in factors) for c, factors in _terms(polynomial))


def true_at(condition: Condition, numbers: dict[Any, int]) -> bool:
    if isinstance(condition, NotNegative):
        return at_numbers(condition.expression, numbers) >= 0
    joined = all if isinstance(condition, All) else any
    return joined(true_at(part, numbers) for part in condition.parts)


@pytest.mark.parametrize(
    "mask",
    [
        neighborhood((4, 6), (3, 2), (1, 2), (True, False)),
        tiled_neighborhood((4, 6), (2, 3), (3, 2)),
        IMAGE & causal,
        (q_idx - 7) // 3 % 4 >= 2,
    ],
)
def test_facts_hold_of_the_numbers_they_are_about(mask: Any) -> None:
    """No instance of a law is false, whatever the positions and the parameters are."""
    node = mask.prove().mask
    choose = random.Random(0)
    encoder = Recorded()
    conditions = [encoder.condition(cube) for cube in cubes(node, True)]
    facts = encoder.complete(conditions)
    slots = {
        cast(Slot, inner.own[0]).text: cast(Slot, inner.own[0])
        for inner in node.walk()
        if inner.op == "scalar"
    }
    held = 0
    for _ in range(25):
        at = {name: choose.randint(0, 40) for name in ("q_idx", "kv_idx", "q0", "q1")}
        at |= {text: (slot.low or 0) + choose.randint(0, 5) for text, slot in slots.items()}
        numbers = encoder.numbers(at)
        assert true_at(All(tuple(facts[len(conditions) :])), numbers), at
        # The conditions, too, are true exactly where the formula is.
        assert true_at(All(tuple(facts)), numbers) == bool(value(node, at)), at
        held += bool(value(node, at))
    assert held
