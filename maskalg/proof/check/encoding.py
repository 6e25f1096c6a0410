"""Formulas as conditions over integers, independently of the closed forms that they check.

An operation that is not linear becomes an unknown with *facts* about it. Facts are instances of
these laws, and of no others:

- floor(x / c) = f, for c >= 1:  c f <= x <= c f + c - 1;  floor((c y + x) / c) = y + floor(x / c)
- floor(floor(x / c) / d) = floor(x / (c d)), for c, d >= 1
- x <= y gives floor(x / c) <= floor(y / c), and 0 <= x gives 0 <= floor(x / c)
- e >= 0 gives c e >= 0, for c >= 1
- a maximum (minimum) is no less (no more) than its arguments, and equals one of them
- a `where` equals the branch its condition chooses
- a mod c = b mod c if and only if c divides a - b
- tables of documents and members of sets: see `laws.py`

An entry of a tensor is an unknown without facts, the same wherever it is read: x = y gives
t[x] = t[y].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import sympy as sp

from ...engine.normal_form import Value
from ...formula import laws, nodes
from ...formula.laws import NEVER, All, Any_, Condition, NotNegative, equal, inequalities
from ...formula.nodes import Node
from ...formula.parameters import Slot, common_order
from ..documents import same_document
from .laws import Lookup, contiguous, inverses, member_laws, own_places


class Encoder:
    """Conditions of formulas that share unknowns, and the facts about those.

    Args:
        values: the values of the slots, in place of their numbers; None leaves every number
            unknown within its declared bound.
        contiguous: whether equal ids of documents are taken to be contiguous.
    """

    def __init__(
        self, values: tuple[Value, ...] | None = None, *, contiguous: bool = False
    ) -> None:
        self._values = values
        self._contiguous = contiguous
        self._unknowns: dict[str, Any] = {}
        self._quotients: list[tuple[Any, Any, Any]] = []  # floor(x / c), x, c
        self._of_quotients: list[tuple[Any, Any, Any]] = []  # the same, where x was a quotient
        self._definitions: list[Condition] = []
        self._steps: list[Lookup] = []
        self._members: list[Lookup] = []
        self._reads: list[tuple[Node, Any, list[Any]]] = []
        self.laws: set[str] = {"contiguous documents"} if contiguous else set()

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
        if op == "eq" and any(arg.op == "where" for arg in args):
            return self.condition(by_branch(node), holds)
        if op in ("ge", "eq") and all(arg.kind == "int" for arg in args):
            difference = self.term(args[0]) - self.term(args[1])
            if op == "ge":
                return NotNegative(difference if holds else -difference - 1)
            found = (*self._unequal_or_equal(difference, holds), *self._places(node, holds))
            return All((*found, *self._remainders(node, holds)))
        truth = self._unknown(node)
        return NotNegative(truth - 1 if holds else -truth)

    def term(self, node: Node) -> Any:
        """The integer formula as a polynomial in unknowns."""
        op, args = node.op, node.args
        if op == "step" and common_order(*node.own) is not None:
            node = contiguous(node)
            self.laws.add("declared order")
        elif op == "step" and self._contiguous:
            node = contiguous(node)
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

    def complete(self, conditions: list[Condition]) -> list[Condition]:
        """The conditions and the facts about their unknowns."""
        known = [*conditions, *self._definitions, *self._same_entries()]
        divided = (*self._quotients, *self._of_quotients)
        for quotient, x, c in divided:
            self.laws.add("floor division")
            known.append(laws.divided(quotient, x - c * quotient, x, c))
            known.append(laws.sign_of_quotient(quotient, x))
        if self._steps:
            self.laws.add("document tables")
            known += own_places(self._steps) + inverses(self._steps)
        if self._members:
            self.laws.add("sets of positions")
            known += member_laws(self._members, self)
        products = {m for c in conditions for e in inequalities(c) for m in _monomials(e)}
        functions = [(f, x, str(c)) for f, x, c in self._quotients]
        functions += [(f.value, f.position, f.family) for f in (*self._steps, *self._members)]
        for f, x, name in functions:
            for g, y, other in functions:
                if f is not g and name == other:
                    known.append(Any_((NotNegative(x - y - 1), NotNegative(g - f))))
        known += self._same_quotients()
        factors = {}
        for c in sorted({c for _, _, c in divided if not c.is_Integer}, key=str):
            factors[c] = {f for f, _, d in divided if d == c or c * f in products}
        return [self._times(factors, condition) for condition in known]

    def _same_quotients(self) -> Iterator[Condition]:
        """For quotients a of the query and b of the key by one divisor c: a <= b gives c a <= c b,
        and the reverse. The order of positions written in digits needs this."""
        q, k = ({self._unknowns.get(index.canonical)} for index in (nodes.Q, nodes.K))
        of_q = [(f, c) for f, x, c in self._quotients if x.free_symbols & q]
        of_k = [(g, c) for g, y, c in self._quotients if y.free_symbols & k]
        for f, c in of_q:
            for g in (g for g, d in of_k if c == d and not c.is_Integer):
                for a, b in ((f, g), (g, f)):
                    product = NotNegative(sp.expand(c * (b - a)))
                    yield Any_((NotNegative(a - b - 1), product))

    def _times(self, factors: dict[Any, set[Any]], condition: Condition) -> Condition:
        """The condition with c e >= 0 added to each e >= 0 on a quotient that c multiplies."""
        if not isinstance(condition, NotNegative):
            parts = tuple([self._times(factors, part) for part in condition.parts])
            return type(condition)(parts)
        e = condition.expression
        held = e.free_symbols
        found = [
            NotNegative(_product(c, e))
            for c, quotients in factors.items()
            if held & quotients and not held & c.free_symbols
        ]
        if not found:
            return condition
        self.laws.add("products")
        return All((condition, *found))

    def _unequal_or_equal(self, difference: Any, holds: bool) -> tuple[Condition, ...]:
        if holds:
            return (equal(difference, 0),)
        return (Any_((NotNegative(difference - 1), NotNegative(-difference - 1))),)

    def _places(self, node: Node, holds: bool) -> tuple[Condition, ...]:
        """Where the key lies in the query's tables, for an equality of ids."""
        pair = same_document(node)
        if pair is None:
            return ()
        key = self.term(pair.of_key.args[-1])
        if holds:
            first, last = (self.term(pair.table(name)) for name in ("first", "last"))
            return NotNegative(key - first), NotNegative(last - key)
        start, end = (self.term(pair.table(name)) for name in ("start", "end"))
        return (Any_((NotNegative(start - 1 - key), NotNegative(key - end - 1))),)

    def _remainders(self, node: Node, holds: bool) -> tuple[Condition, ...]:
        """The condition that the modulus divides a difference, for an equality of remainders."""
        found = congruence(node)
        if found is None or not _at_least_one(found.modulus):
            return ()
        self.laws.add("remainders")
        c = self.term(found.modulus)
        difference = sp.expand(self.term(found.left) - self.term(found.right))
        if c.is_Integer:
            terms = difference.as_coefficients_dict()
            difference = sp.Add(*[n % c * term for term, n in terms.items()])
            mirrored = sp.Add(*[-n % c * term for term, n in terms.items()])
        else:
            mirrored = -difference
        name = min(str(difference), str(sp.expand(mirrored)))
        divides = self._fresh(f"{c} divides {name}")
        if holds:
            return (NotNegative(divides - 1),)
        outside = [NotNegative(-divides)]
        if found.number:
            r = self.term(found.right)
            outside += [NotNegative(-r - 1), NotNegative(r - c)]
        return (Any_(tuple(outside)),)

    def _quotient(self, node: Node, x: Any, c: Any) -> Any:
        x = sp.expand(x)
        if c.is_Integer and c >= 1:
            terms = x.as_coefficients_dict()
            whole = sp.Add(*[n // c * term for term, n in terms.items()])
        elif c.is_Symbol and _at_least_one(node.args[1]):
            whole = x.coeff(c, 1)
        else:
            return self._rest(node, x, c)
        rest = sp.expand(x - c * whole)
        if rest.is_Integer and (c.is_Integer or rest in (0, -1)):
            # floor(-1 / c) is -1 for every c >= 1.
            return whole + (rest // c if c.is_Integer else rest)
        return whole + self._rest(node, rest, c)

    def _rest(self, node: Node, x: Any, c: Any) -> Any:
        for quotient, dividend, divisor in self._quotients:
            if dividend == x and divisor == c:
                return quotient
        quotient = self._fresh(f"floor {len(self._unknowns)} {node.canonical}")
        if (c.is_Integer and c >= 1) or _at_least_one(node.args[1]):
            self._quotients.append((quotient, x, c))
            self._of_quotients += [
                (quotient, inner, sp.expand(c * d))
                for f, inner, d in (*self._quotients, *self._of_quotients)
                if f == x
            ]
        return quotient

    def _define(self, node: Node, unknown: Any) -> None:
        """Facts about the unknown that stands for a formula."""
        op, args = node.op, node.args
        facts = self._definitions
        if (op == "index" and node.data in ("batch", "head")) or op == "extent":
            facts.append(NotNegative(unknown))
        elif op == "scalar" and cast(Slot, node.own[0]).low is not None:
            facts.append(NotNegative(unknown - cast(int, cast(Slot, node.own[0]).low)))
        elif op in ("max", "min") and node.kind == "int":
            facts.append(laws.LAWS[op](unknown, *map(self.term, args)))
        elif op == "where" and node.kind == "int":
            then, otherwise = (equal(unknown, self.term(arg)) for arg in args[1:])
            chosen, other = self.condition(args[0]), self.condition(args[0], False)
            facts.append(Any_((All((chosen, then)), All((other, otherwise)))))
        elif op in ("member", "step"):
            of = self._members if op == "member" else self._steps
            of.append(Lookup(node, unknown, self.term(args[-1])))

    def _same_entries(self) -> Iterator[Condition]:
        """Facts that reads of one table at the same place are equal."""
        for i, (node, value, places) in enumerate(self._reads):
            for other, entry, others in self._reads[:i]:
                if node.own[0] is other.own[0] and len(places) == len(others):
                    gaps = [sp.expand(x - y) for x, y in zip(places, others, strict=True)]
                    apart = [NotNegative(sign * gap - 1) for gap in gaps for sign in (1, -1)]
                    yield Any_((*apart, equal(value, entry)))

    def _unknown(self, node: Node) -> Any:
        known = node.canonical in self._unknowns
        unknown = self._fresh(node.canonical)
        if not known and node.op == "read" and all(arg.kind == "int" for arg in node.args):
            self._reads.append((node, unknown, [self.term(arg) for arg in node.args]))
        return unknown

    def _fresh(self, key: str) -> Any:
        if key not in self._unknowns:
            self._unknowns[key] = sp.Symbol(f"x{len(self._unknowns)}", real=True)
        return self._unknowns[key]


@lru_cache(maxsize=8192)
def _product(c: Any, e: Any) -> Any:
    return sp.expand(c * e)


def _monomials(expression: Any) -> set[Any]:
    return {term.as_coeff_Mul()[1] for term in sp.Add.make_args(sp.expand(expression))}


def _at_least_one(node: Node) -> bool:
    """Whether a divisor is declared to be positive."""
    if node.op == "scalar":
        return (cast(Slot, node.own[0]).low or 0) >= 1
    if node.op == "max":
        return any(arg.op == "const" and cast(int, arg.data) >= 1 for arg in node.args)
    if node.op == "mul":
        return all(map(_at_least_one, node.args))
    return node.op == "const" and cast(int, node.data) >= 1


@dataclass(frozen=True)
class SameRemainder:
    """left mod modulus equals right mod modulus, or the number `right` itself."""

    left: Node
    right: Node
    modulus: Node
    number: bool


def congruence(node: Node) -> SameRemainder | None:
    """An equality of two remainders by the same divisor, or of a remainder and a number."""
    for one, other in (node.args, node.args[::-1]):
        if one.op == "mod" and other.op == "mod" and one.args[1] == other.args[1]:
            return SameRemainder(one.args[0], other.args[0], one.args[1], number=False)
    for one, other in (node.args, node.args[::-1]):
        if one.op == "mod":
            return SameRemainder(one.args[0], other, one.args[1], number=True)
    return None


def by_branch(node: Node) -> Node:
    """`where(c, a, b) == x` as `c & (a == x) | ~c & (b == x)`."""
    where, other = node.args if node.args[0].op == "where" else node.args[::-1]
    chosen, then, otherwise = where.args
    return nodes.disjunction(
        nodes.conjunction(chosen, nodes.eq(then, other)),
        nodes.conjunction(nodes.negation(chosen), nodes.eq(otherwise, other)),
    )
