"""From a mask to clauses of literals: disjunctive normal form over the integers.

A literal is an inequality `e >= 0`, a congruence on the distance of query and key, or a part the
proof does not reason about. Only inequalities of that form occur: `simplify` and the solvers of
SymPy reason over the reals and would lose positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from .. import nodes
from ..cases import has_extremum, split_extremum, split_where
from ..nodes import Node
from ..parameters import Slot
from ..printing import formula_text
from .functions import expanded
from .signs import OverBudget, Signs
from .symbols import Symbols, Unsupported, k, q

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
class Opaque:
    """A condition taken as unknown; `why` says what the proof cannot reason about."""

    text: str
    holds: bool
    why: str


Literal = AtLeastZero | Congruence | Opaque
Clause = frozenset[Literal]


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
            return [frozenset()] if bool(node.data) == holds else []
        if op == "not":
            return self.of(node.args[0], not holds)
        if op in ("and", "or"):
            parts = [self.of(arg, holds) for arg in node.args]
            return self._all(parts) if (op == "and") == holds else self._any(parts)
        if op == "ge":
            return self._ge(node, holds)
        if op == "eq":
            return self._eq(node, holds)
        return self._opaque(node, holds, f"{formula_text(node)} is not a comparison of positions")

    def _any(self, parts: list[list[Clause]]) -> list[Clause]:
        return self._absorbed([clause for part in parts for clause in part])

    def _all(self, parts: list[list[Clause]]) -> list[Clause]:
        product: list[Clause] = [frozenset()]
        for part in parts:
            joined = [self._tidy(left | right) for left in product for right in part]
            product = self._absorbed([clause for clause in joined if clause is not None])
        return product

    def _tidy(self, clause: Clause) -> Clause | None:
        """The clause without implied literals; None when two of them contradict each other."""
        kept: list[Literal] = []
        for literal in in_order(clause, self._signs):
            if any(self._implies(other, literal) for other in kept):
                continue
            if any(self._contradict(other, literal) for other in kept):
                return None
            kept = [other for other in kept if not self._implies(literal, other)]
            kept.append(literal)
        return frozenset(kept)

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
        if isinstance(left, Opaque) and isinstance(right, Opaque):
            return left.text == right.text and left.holds != right.holds
        if isinstance(left, Congruence) and isinstance(right, Congruence):
            same = (left.offset, left.modulus, left.residue)
            return same == (right.offset, right.modulus, right.residue) and (
                left.holds != right.holds
            )
        return False

    def _single(self, expression: Any, documents: frozenset[IdPair] = frozenset()) -> list[Clause]:
        expression = expanded(expression)
        if self._signs.nonnegative(expression):
            return [frozenset()]
        if self._signs.negative(expression):
            return []
        return [frozenset([AtLeastZero(expression, documents)])]

    def _opaque(self, node: Node, holds: bool, why: str) -> list[Clause]:
        return [frozenset([Opaque(node.skeleton, holds, why)])]

    def _ge(self, node: Node, holds: bool) -> list[Clause]:
        left, right = node.args
        if "real" in (left.kind, right.kind):
            return self._opaque(node, holds, f"{formula_text(node)} compares real numbers")
        split = split_extremum(nodes.subtract(left, right)) or split_where(node)
        if split is not None:
            return self.of(split, holds)
        try:
            difference = self._symbols.to_sympy(left) - self._symbols.to_sympy(right)
        except Unsupported as reason:
            return self._opaque(node, holds, str(reason))
        return self._single(difference if holds else -difference - 1)

    def _eq(self, node: Node, holds: bool) -> list[Clause]:
        left, right = node.args
        special = self._same_document(left, right, holds) or self._congruence(node, holds)
        if special is not None:
            return special
        if left.kind != "int" or right.kind != "int":
            return self._opaque(node, holds, f"{formula_text(node)} does not compare integers")
        try:
            self._symbols.to_sympy(left)
            self._symbols.to_sympy(right)
        except Unsupported as reason:
            if split_where(node) is None and not has_extremum(node):
                return self._opaque(node, holds, str(reason))
        both = nodes.conjunction(nodes.ge(left, right), nodes.ge(right, left))
        return self.of(both, holds)

    def _same_document(self, left: Node, right: Node, holds: bool) -> list[Clause] | None:
        """table[q'] == table[k']: between first and last occurrence, or outside of the run."""
        if left.op != "read" or right.op != "read" or "real" in (left.kind, right.kind):
            return None
        by_query = next((r for r in (left, right) if _depends(r, "q_idx", "kv_idx")), None)
        by_key = next((r for r in (left, right) if _depends(r, "kv_idx", "q_idx")), None)
        if by_query is None or by_key is None or not _one_family(by_query, by_key):
            return None
        try:
            pair = self._symbols.step(by_query, by_key)
        except Unsupported:
            return None
        slots = frozenset([(cast(Slot, by_query.own[0]), cast(Slot, by_key.own[0]))])
        if holds:
            low = self._single(pair.y - pair.at("first"), slots)
            high = self._single(pair.at("last") - pair.y, slots)
            return self._all([low, high])
        before = self._single(pair.at("start") - 1 - pair.y, slots)
        after = self._single(pair.y - pair.at("end") - 1, slots)
        return self._any([before, after])

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
            # k - q + c is a multiple of m exactly when q - k - c is.
            offset = -mirrored
        if residue.has(q, k) or not residue.is_Integer:
            return None
        if modulus == 1:
            return [frozenset()] if (residue == 0) == holds else []
        if residue < 0 or (modulus.is_Integer and residue >= modulus):
            return [] if holds else [frozenset()]
        if not modulus.is_Integer and residue != 0:
            return None
        return [frozenset([Congruence(offset, modulus, residue, holds)])]


def in_order(clause: Clause, signs: Signs) -> list[Literal]:
    """The literals in an order that is the same in every process, as that of a set is not."""

    def place(literal: Literal) -> tuple[object, ...]:
        if isinstance(literal, AtLeastZero):
            pairs = sorted((x.index, y.index) for x, y in literal.documents)
            return 0, signs.place(literal.expression), pairs
        return 1, str(literal)

    return sorted(clause, key=place) if len(clause) > 1 else list(clause)


def _one_family(by_query: Node, by_key: Node) -> bool:
    """Whether step tables can be made of two reads: one per batch (or head) at most, the same one.

    A key position that a tensor shifts may leave the table, where reads are clamped and the step
    tables are not.
    """
    leading = {arg for read in (by_query, by_key) for arg in read.args[:-1]}
    if len(by_query.args) > 2 or len(by_key.args) > 2 or len(leading) > 1:
        return False
    if any(arg.op != "index" for arg in leading):
        return False
    return not any(node.op == "read" for node in by_key.args[-1].walk())


def _depends(read: Node, on: str, not_on: str) -> bool:
    """Whether a read's last index depends on `on`, and none of its indices on `not_on`."""
    if not read.args:
        return False
    earlier = frozenset().union(*(arg.indices() for arg in read.args[:-1]))
    last = read.args[-1].indices()
    return on in last and not_on not in last and not (earlier & {"q_idx", "kv_idx"})
