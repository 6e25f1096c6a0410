"""From a mask to clauses of literals: disjunctive normal form over the integers.

A literal is one of:

- an inequality `e >= 0` (all inequalities have this form);
- a congruence on the distance of query and key;
- a condition on one index or on the distance;
- an equality of a function of the query and one of the key;
- an entry of a table of pairs, at categories of query and key;
- a part that the proof does not reason about.

`simplify` and the solvers of SymPy are not used: they reason over the reals and would lose
positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, cast

from ..formula import nodes, separation
from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..formula.printing import formula_text
from ..formula.separation import has_extremum, split_extremum, split_where
from .signs import OverBudget, Signs
from .symbols import Entry, Symbols, Unsupported, expanded, k, q

CLAUSE_BUDGET: Final = 64


IdPair = tuple[Slot, Slot]  # ids of the queries, ids of the keys


@dataclass(frozen=True)
class AtLeastZero:
    """expression >= 0; `documents` are the pairs of id tables whose order makes it exact."""

    expression: Any
    documents: frozenset[IdPair] = frozenset()


@dataclass(frozen=True)
class Congruence:
    """(q - k + offset) mod modulus is `residue` when `holds`, anything else when not."""

    offset: Any
    modulus: Any
    residue: Any
    holds: bool


@dataclass(frozen=True)
class Alone:
    """A formula of one index ("q_idx", "kv_idx") alone, or of their "distance": a set."""

    node: Node
    index: str
    holds: bool


@dataclass(frozen=True)
class Equal:
    """left(q) == right(k) when `holds`, != when not.

    With `documents`, inequalities of the same clause say the same, exactly if ids are contiguous.
    """

    left: Node
    right: Node
    holds: bool
    documents: IdPair | None = None


@dataclass(frozen=True)
class Related:
    """relation(f(q), g(k)): an entry of a table of pairs, of the categories of query and key."""

    relation: Node
    f: Node
    g: Node
    holds: bool


@dataclass(frozen=True)
class Opaque:
    """A condition that the proof cannot reason about, and why; it counts as unknown."""

    node: Node
    holds: bool
    why: str


Literal = AtLeastZero | Congruence | Alone | Equal | Related | Opaque
Clause = tuple[Literal, ...]
"""Literals that hold together, each once, in the same order in every process."""


def _sides(node: Node) -> list[tuple[Node, Node]] | None:
    """The condition and the rest of both sides of a disjunction, if one condition is the negation
    of the other."""
    if len(node.args) != 2 or any(arg.op != "and" for arg in node.args):
        return None
    for conditions in product(*[arg.args for arg in node.args]):
        if _opposite(*conditions):
            return [
                (part, nodes.conjunction(*[each for each in arg.args if each is not part]))
                for arg, part in zip(node.args, conditions, strict=True)
            ]
    return None


def _opposite(left: Node, right: Node) -> bool:
    """Whether one condition is the negation of the other, as written."""
    if left.op == right.op == "ge" and all(x.kind == "int" for x in (*left.args, *right.args)):
        # Not (c - d >= 0) is d - c - 1 >= 0.
        c, d = right.args
        return nodes.subtract(*left.args) == nodes.add(nodes.subtract(d, c), nodes.const(-1))
    return nodes.negation(left) == right


class Clauses:
    """Normalises formulas of one structure to clauses, pruning as they grow."""

    def __init__(self, symbols: Symbols, signs: Signs) -> None:
        self._symbols = symbols
        self._signs = signs

    def of(self, node: Node, holds: bool) -> list[Clause]:
        """The clauses of the formula, or of its negation; an empty list is never satisfied.

        Raises:
            OverBudget: more than `CLAUSE_BUDGET` clauses.
        """
        op = node.op
        if op == "const":
            return [()] if bool(node.data) == holds else []
        if op == "not":
            return self.of(node.args[0], not holds)
        if op == "or" and not holds and (sides := _sides(node)) is not None:
            # Not (c and A or not c and B): c and not A, or not c and not B. The product of what
            # drops A and what drops B would have many more clauses.
            return self._any(
                [self._all([self.of(c, True), self.of(rest, False)]) for c, rest in sides]
            )
        if op in ("and", "or"):
            parts = [self.of(arg, holds) for arg in node.args]
            return self._all(parts) if (op == "and") == holds else self._any(parts)
        if op == "ge":
            return self._ge(node, holds)
        if op == "eq":
            return self._eq(node, holds)
        return self._other(node, holds, f"{formula_text(node)} is not a comparison of positions")

    def _any(self, parts: list[list[Clause]]) -> list[Clause]:
        return self._absorbed([clause for part in parts for clause in part])

    def _all(self, parts: list[list[Clause]]) -> list[Clause]:
        every: list[Clause] = [()]
        for part in parts:
            joined = [self.tidy(left + right) for left in every for right in part]
            every = self._absorbed([clause for clause in joined if clause is not None])
        return every

    def tidy(self, clause: Clause) -> Clause | None:
        """The clause without implied literals; None when two of them contradict each other."""
        kept: list[Literal] = []
        for literal in _in_order(clause, self._signs):
            if any(self._stands_for(other, literal) for other in kept):
                continue
            if any(self._contradict(other, literal) for other in kept):
                return None
            kept = [other for other in kept if not self._stands_for(literal, other)]
            kept.append(literal)
        return tuple(kept)

    def _stands_for(self, known: Literal, wanted: Literal) -> bool:
        """Whether `known` makes `wanted` superfluous in a clause. Sections skip bounds of
        documents, so these do not replace other bounds."""
        by_documents = isinstance(known, AtLeastZero) and bool(known.documents)
        if by_documents and isinstance(wanted, AtLeastZero) and not wanted.documents:
            return False
        return self._implies(known, wanted)

    def _absorbed(self, clauses: list[Clause]) -> list[Clause]:
        """The clauses without those that another one contains."""
        kept: list[Clause] = []
        for clause in clauses:
            if any(self._within(clause, other) for other in kept):
                continue
            kept = [other for other in kept if not self._within(other, clause)]
            kept.append(clause)
            if len(kept) > CLAUSE_BUDGET:
                raise OverBudget(f"more than {CLAUSE_BUDGET} clauses")
        return kept

    def _within(self, inner: Clause, outer: Clause) -> bool:
        return all(any(self._implies(have, need) for have in inner) for need in outer)

    def _implies(self, known: Literal, wanted: Literal) -> bool:
        self._signs.spend(0.01)
        if isinstance(known, AtLeastZero) and isinstance(wanted, AtLeastZero):
            return self._signs.ordered(known.expression, wanted.expression)
        return known == wanted

    def _contradict(self, left: Literal, right: Literal) -> bool:
        if isinstance(left, AtLeastZero) and isinstance(right, AtLeastZero):
            # An over-approximated pair that cannot hold together rules out the exact one too.
            return self._signs.opposed(left.expression, right.expression)
        if isinstance(left, AtLeastZero) or type(left) is not type(right):
            return False
        return left.holds != right.holds and replace(left, holds=right.holds) == right

    def _single(self, expression: Any, documents: frozenset[IdPair] = frozenset()) -> list[Clause]:
        expression = expanded(expression)
        if self._signs.nonnegative(expression):
            return [()]
        if self._signs.negative(expression):
            return []
        return [(AtLeastZero(expression, documents),)]

    def _other(self, node: Node, holds: bool, why: str) -> list[Clause]:
        """A literal that is not an inequality: a set, an equality of two functions, or unknown."""
        index = separation.index_of(node)
        sides = separation.equal_sides(node) if node.op == "eq" else None
        if sides is not None and index in ("distance", None):
            return [(Equal(*sides, holds),)]
        if index is not None:
            return [(Alone(node, index, holds),)]
        relation = separation.related(node)
        if relation is not None:
            return [(Related(*relation, holds),)]
        return [(Opaque(node, holds, why),)]

    def _ge(self, node: Node, holds: bool) -> list[Clause]:
        left, right = node.args
        if "real" in (left.kind, right.kind):
            return self._other(node, holds, f"{formula_text(node)} compares real numbers")
        if separation.is_set(node):
            return self._other(node, holds, "")
        split = split_extremum(nodes.subtract(left, right)) or split_where(node)
        if split is not None:
            # Each split of a nested choice doubles the formula.
            self._signs.spend(2)
            return self.of(split, holds)
        try:
            difference = self._symbols.to_sympy(left) - self._symbols.to_sympy(right)
        except Unsupported as reason:
            return self._other(node, holds, str(reason))
        return self._single(difference if holds else -difference - 1)

    def _eq(self, node: Node, holds: bool) -> list[Clause]:
        left, right = node.args
        special = self._same_document(left, right, holds) or self._congruence(node, holds)
        if special is not None:
            return special
        if left.kind != "int" or right.kind != "int" or separation.is_set(node):
            return self._other(node, holds, f"{formula_text(node)} does not compare integers")
        if not (has_extremum(node) or "where" in node.ops()):
            try:
                difference = self._symbols.to_sympy(left) - self._symbols.to_sympy(right)
            except Unsupported as reason:
                return self._other(node, holds, str(reason))
            if difference.has(Entry) or separation.has_mod(node):
                found = self._other(node, holds, f"{formula_text(node)} mixes query and key")
                if not any(isinstance(literal, Opaque) for clause in found for literal in clause):
                    return found
        both = nodes.conjunction(nodes.ge(left, right), nodes.ge(right, left))
        return self.of(both, holds)

    def _same_document(self, left: Node, right: Node, holds: bool) -> list[Clause] | None:
        """table[q'] == table[k']: between first and last occurrence, or outside of the run."""
        if left.op != "read" or right.op != "read" or "real" in (left.kind, right.kind):
            return None
        by_query = next(
            (r for r in (left, right) if separation.depends(r, "q_idx", "kv_idx")), None
        )
        by_key = next((r for r in (left, right) if separation.depends(r, "kv_idx", "q_idx")), None)
        if by_query is None or by_key is None or not separation.one_family(by_query, by_key):
            return None
        try:
            pair = self._symbols.step(by_query, by_key)
        except Unsupported:
            return None
        documents = (cast(Slot, by_query.own[0]), cast(Slot, by_key.own[0]))
        slots = frozenset([documents])
        same: list[Clause] = [(Equal(by_query, by_key, holds, documents),)]
        if holds:
            low = self._single(pair.y - pair.at("first"), slots)
            high = self._single(pair.at("last") - pair.y, slots)
            return self._all([same, low, high])
        before = self._single(pair.at("start") - 1 - pair.y, slots)
        after = self._single(pair.y - pair.at("end") - 1, slots)
        return self._all([same, self._any([before, after])])

    def _congruence(self, node: Node, holds: bool) -> list[Clause] | None:
        """(q - k + offset) % modulus == residue."""
        remainder = next((arg for arg in node.args if arg.op == "mod"), None)
        other = next((arg for arg in node.args if arg is not remainder), None)
        if remainder is None or other is None:
            return None
        try:
            inside = self._symbols.to_sympy(remainder.args[0])
            modulus = self._symbols.divisor(remainder.args[1])
            residue = self._symbols.to_sympy(other)
        except Unsupported:
            return None
        offset = expanded(inside - q + k)
        if offset.has(q, k):
            mirrored = expanded(inside - k + q)
            if mirrored.has(q, k) or residue != 0:
                return None
            # k - q + c is a multiple of m if and only if q - k - c is.
            offset = -mirrored
        if residue.has(q, k) or not residue.is_Integer:
            return None
        if modulus == 1:
            return [()] if (residue == 0) == holds else []
        if residue < 0 or (modulus.is_Integer and residue >= modulus):
            return [] if holds else [()]
        if not modulus.is_Integer and residue != 0:
            return None
        return [(Congruence(offset, modulus, residue, holds),)]


def _in_order(clause: Clause, signs: Signs) -> list[Literal]:
    """The literals in a fixed order, each once. Hashes differ between processes and must not decide
    it, because the order decides how many steps a proof takes, and so whether it exceeds its
    budget."""

    def place(literal: Literal) -> tuple[object, ...]:
        if isinstance(literal, AtLeastZero):
            pairs = sorted((x.index, y.index) for x, y in literal.documents)
            return 0, signs.place(literal.expression), pairs
        return 1, str(literal)

    return sorted(dict.fromkeys(clause), key=place)
