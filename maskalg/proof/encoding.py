"""Formulas as conditions over integers, independently of the closed forms they are checked against.

What linear arithmetic has no word for becomes an unknown, with *facts* that say what is known of
it. Facts are instances of these laws, and of no others:

- floor(x / c) = f, for c >= 1:  c f <= x <= c f + c - 1;  x <= y gives floor(x/c) <= floor(y/c)
- e >= 0 gives c e >= 0, for c >= 1
- a maximum (minimum) is no less (no more) than its arguments, and equals one of them
- a `where` equals the branch its condition chooses
- tables of documents: see `document_laws.py`

An entry of a tensor is an unknown about which nothing is known, the same wherever the same entry
is read.
"""

from __future__ import annotations

from typing import Any, cast

import sympy as sp

from ..nodes import Node
from ..normalform import Value
from ..parameters import Slot
from .arithmetic import (
    NEVER,
    All,
    Any_,
    AtLeastZero,
    Condition,
    equal,
    implies,
    inequalities,
)
from .document_laws import TABLES, StepTerm, membership, same_document, table_laws


class Encoder:
    """Conditions of formulas that share unknowns, and the facts on those.

    Args:
        values: the values of the slots, put in for numbers; None leaves every number unknown
            within its declared bound.
    """

    def __init__(self, values: tuple[Value, ...] | None = None) -> None:
        self._values = values
        self._unknowns: dict[str, Any] = {}
        self._quotients: list[tuple[Any, Any, Any]] = []  # floor(x / c), x, c
        self._definitions: list[Condition] = []
        self._steps: list[StepTerm] = []
        self._documents: set[str] = set()
        self.laws: set[str] = set()

    def condition(self, node: Node, holds: bool = True) -> Condition:
        """The Boolean formula, or its negation, as a condition."""
        op, args = node.op, node.args
        if op == "const":
            return All(()) if bool(node.data) == holds else NEVER
        if op == "not":
            return self.condition(args[0], not holds)
        if op in ("and", "or"):
            parts = tuple(self.condition(arg, holds) for arg in args)
            return All(parts) if (op == "and") == holds else Any_(parts)
        if op in ("ge", "eq") and all(arg.kind == "int" for arg in args):
            difference = self.term(args[0]) - self.term(args[1])
            if op == "ge":
                return AtLeastZero(difference if holds else -difference - 1)
            self._meet_documents(node)
            if holds:
                return equal(difference, 0)
            return Any_((AtLeastZero(difference - 1), AtLeastZero(-difference - 1)))
        truth = self._unknown(node)
        return AtLeastZero(truth - 1 if holds else -truth)

    def term(self, node: Node) -> Any:
        """The integer formula as a polynomial in unknowns."""
        op, args = node.op, node.args
        if op == "const" and node.kind == "int":
            return sp.Integer(cast(int, node.data))
        if op == "add":
            return sp.Add(*[self.term(arg) for arg in args])
        if op == "mul":
            return sp.expand(sp.Mul(*[self.term(arg) for arg in args]))
        if op == "scalar" and self._values is not None:
            return sp.Integer(cast(int, self._values[cast(Slot, node.own[0]).index]))
        if op == "extent" and self._values is not None:
            table: Any = self._values[cast(Slot, node.own[0]).index]
            return sp.Integer(table.shape[cast(int, node.data)])
        if op in ("floordiv", "mod"):
            x, c = self.term(args[0]), self.term(args[1])
            quotient = self._quotient(node, x, c)
            return quotient if op == "floordiv" else sp.expand(x - c * quotient)
        known = node.canonical in self._unknowns
        unknown = self._unknown(node)
        if not known:
            self._define(node, unknown)
        return unknown

    def facts(self) -> list[Condition]:
        """What is known of the unknowns met so far."""
        facts = [*self._definitions]
        for quotient, x, c in self._quotients:
            self.laws.add("floor division")
            facts += [AtLeastZero(x - c * quotient), AtLeastZero(c * quotient + c - 1 - x)]
        for i, (f, x, c) in enumerate(self._quotients):
            for g, y, d in self._quotients[i + 1 :]:
                if c == d:
                    facts += [implies(y - x, g - f), implies(x - y, f - g)]
        if self._steps:
            self.laws.add("document tables")
        return facts + table_laws(self._steps)

    def products(self, conditions: list[Condition]) -> list[Condition]:
        """c e >= 0 for each divisor c and each inequality e >= 0 on a quotient by c."""
        divisors = {c for _, _, c in self._quotients if not c.is_Integer}
        found: list[Condition] = []
        for c in sorted(divisors, key=str):
            quotients = {f for f, _, d in self._quotients if d == c}
            compared = {sp.expand(e) for e in inequalities(All(tuple(conditions)))}
            for e in sorted(compared, key=str):
                if e.free_symbols & quotients and not e.has(c):
                    self.laws.add("products")
                    found += [implies(e, c * e), implies(-e - 1, -c * e - c)]
        return found

    def _quotient(self, node: Node, x: Any, c: Any) -> Any:
        if c.is_Integer and c >= 1:
            # Multiples of c come out: floor((c y + r) / c) = y + floor(r / c).
            terms = sp.expand(x).as_coefficients_dict()
            whole = sp.Add(*[n // c * term for term, n in terms.items()])
            rest = sp.expand(x - c * whole)
            return whole + (rest // c if rest.is_Integer else self._rest(node, rest, c))
        return self._rest(node, x, c)

    def _rest(self, node: Node, x: Any, c: Any) -> Any:
        for quotient, dividend, divisor in self._quotients:
            if dividend == x and divisor == c:
                return quotient
        quotient = self._fresh(f"floor {len(self._unknowns)} {node.canonical}")
        if (c.is_Integer and c >= 1) or _at_least_one(node.args[1]):
            self._quotients.append((quotient, x, c))
        return quotient

    def _define(self, node: Node, unknown: Any) -> None:
        """Facts on the unknown that stands for a formula."""
        op, args = node.op, node.args
        facts = self._definitions
        if (op == "index" and node.data in ("batch", "head")) or op == "extent":
            facts.append(AtLeastZero(unknown))
        elif op == "scalar" and cast(Slot, node.own[0]).low is not None:
            facts.append(AtLeastZero(unknown - cast(int, cast(Slot, node.own[0]).low)))
        elif op in ("max", "min") and node.kind == "int":
            sign = 1 if op == "max" else -1
            gaps = [AtLeastZero(sign * (unknown - self.term(arg))) for arg in args]
            facts += [*gaps, Any_(tuple(AtLeastZero(-gap.expression) for gap in gaps))]
        elif op == "where" and node.kind == "int":
            then, otherwise = (equal(unknown, self.term(arg)) for arg in args[1:])
            chosen, other = self.condition(args[0]), self.condition(args[0], False)
            facts.append(Any_((All((chosen, then)), All((other, otherwise)))))
        elif op == "step":
            self._steps.append(StepTerm(node, unknown, self.term(args[-1])))

    def _meet_documents(self, node: Node) -> None:
        """Relate an equality of ids to the tables at its query, once."""
        pair = same_document(node)
        if pair is None or node.canonical in self._documents:
            return
        self._documents.add(node.canonical)
        tables = {name: self.term(pair.table(name)) for name in TABLES}
        ids = (self.term(pair.of_query), self.term(pair.of_key))
        self._definitions += membership(ids, self.term(pair.of_key.args[-1]), tables)

    def _unknown(self, node: Node) -> Any:
        return self._fresh(node.canonical)

    def _fresh(self, key: str) -> Any:
        if key not in self._unknowns:
            self._unknowns[key] = sp.Symbol(f"x{len(self._unknowns)}", real=True)
        return self._unknowns[key]


def _at_least_one(node: Node) -> bool:
    """Whether a divisor is declared to be positive."""
    if node.op == "scalar":
        return (cast(Slot, node.own[0]).low or 0) >= 1
    if node.op == "max":
        return any(arg.op == "const" and cast(int, arg.data) >= 1 for arg in node.args)
    return node.op == "const" and cast(int, node.data) >= 1
