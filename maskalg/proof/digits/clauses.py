"""From a mask to clauses of digits: disjunctive normal form, one formula an axis.

Literals on one axis stay together: an axis keeps a union of intervals, and a product of such unions
is one clause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from ...formula import nodes
from ...formula.nodes import Node
from ...formula.separation import POSITIONS, Index, positions, split_extremum, split_where, terms_of
from ..signs import OverBudget
from .tree import Coordinate, DigitTree, NotDigits, Path, factors

Paths = tuple[Path, ...]

# A clause costs little here: axes of one structure are projected once.
CLAUSE_BUDGET: Final = 256

_ZERO: Final = nodes.const(0)
_LESS: Final = nodes.const(-1)


@dataclass(frozen=True)
class DigitClause:
    """A conjunction: conditions without positions, bounds on positions, a formula for each axis."""

    conditions: tuple[Node, ...] = ()
    bounds: tuple[tuple[str, Node], ...] = ()  # ("q_low", n) and so on
    axes: tuple[tuple[Paths, Node], ...] = ()

    def joined(self, other: DigitClause) -> DigitClause:
        return DigitClause(
            self.conditions + other.conditions,
            self.bounds + other.bounds,
            self.axes + other.axes,
        )


class DigitClauses:
    """Normalises a formula over one tree of digits."""

    def __init__(self, tree: DigitTree, mask: Node) -> None:
        self._tree = tree
        axes = set(tree.axes_in(mask))
        # Numbers that also occur by digits are compared digit by digit.
        self._undivided = {
            axis
            for axis in axes
            if any(
                axis != other and set(axis) & set(other) and len(other) <= len(axis)
                for other in axes
            )
        }

    def of(self, node: Node, holds: bool) -> list[DigitClause]:
        """The clauses of the formula, or of its negation.

        Raises:
            NotDigits: a part that is not about one axis.
            OverBudget: more than `CLAUSE_BUDGET` clauses.
        """
        if node.op == "const":
            return [DigitClause()] if bool(node.data) == holds else []
        if node.op == "not":
            return self.of(node.args[0], not holds)
        if not positions(node):
            return [DigitClause(conditions=(_signed(node, holds),))]
        by_case = self._by_case(node)
        if by_case is not None:
            return [clause for case in by_case for clause in self._of_case(case, holds)]
        bound = self._bound_of(node, holds)
        if bound is not None:
            return bound
        axis = self._axis_of(node)
        if axis is not None:
            return [DigitClause(axes=((axis, _signed(node, holds)),))]
        if node.op in ("and", "or"):
            parts = [self.of(part, holds) for part in self._grouped(node)]
            return _all(parts) if (node.op == "and") == holds else _any(parts)
        if node.op == "ge":
            return self._ge(node, holds)
        if node.op == "eq":
            left, right = node.args
            both = nodes.conjunction(nodes.ge(left, right), nodes.ge(right, left))
            return self.of(both, holds)
        raise NotDigits(f"{node.op} of positions")

    def _of_case(self, case: tuple[Node, Node], holds: bool) -> list[DigitClause]:
        """Cases exclude each other, so the negation of the whole is that of each case."""
        condition, formula = case
        return _all([self.of(condition, True), self.of(formula, holds)])

    def _by_case(self, node: Node) -> list[tuple[Node, Node]] | None:
        """A formula split by the cases of a `where` that brings another axis into a comparison."""
        for atom in node.walk():
            if atom.op not in ("ge", "eq") or self._axis_of(atom) is not None:
                continue
            choice = next((inner for inner in atom.walk() if inner.op == "where"), None)
            if choice is None:
                continue
            condition, then, otherwise = choice.args
            return [
                (condition, nodes.substitute(node, {choice: then}.get)),
                (nodes.negation(condition), nodes.substitute(node, {choice: otherwise}.get)),
            ]
        return None

    def _grouped(self, node: Node) -> list[Node]:
        """The arguments of `and` or `or`; those on one axis are joined."""
        groups: dict[Paths | int, list[Node]] = {}
        for number, arg in enumerate(node.args):
            alone = self._bound_of(arg, True) is not None
            group = number if alone else self._axis_of(arg) or number
            groups.setdefault(group, []).append(arg)
        join = nodes.conjunction if node.op == "and" else nodes.disjunction
        return [join(*group) for group in groups.values()]

    def _axis_of(self, node: Node) -> Paths | None:
        """The axis of a formula; None if it is on several, or on undivided positions."""
        found = self._coordinates(node)
        axes = {coordinate.paths for coordinate in found or ()}
        return axes.pop() if len(axes) == 1 else None

    def _coordinates(self, node: Node) -> list[Coordinate] | None:
        coordinate = self._tree.coordinate(node)
        if coordinate is not None:
            return None if coordinate.paths in self._undivided else [coordinate]
        if node.op == "index" and node.data in POSITIONS:
            return None
        if node.op in ("floordiv", "mod", "read") and positions(node):
            return None
        found: list[Coordinate] = []
        for arg in node.args:
            part = self._coordinates(arg)
            if part is None:
                return None
            found += part
        return found

    def _ge(self, node: Node, holds: bool) -> list[DigitClause]:
        left, right = node.args
        if left.kind != "int" or right.kind != "int":
            raise NotDigits("real numbers")
        difference = nodes.subtract(left, right)
        split = split_extremum(difference) or split_where(node)
        if split is not None:
            return self.of(split, holds)
        return self._sum(difference if holds else nodes.subtract(nodes.const(-1), difference))

    def _bound_of(self, node: Node, holds: bool) -> list[DigitClause] | None:
        """A bound on a position or on its quotient, as a bound on the index; None for others."""
        if node.op != "ge" or "real" in (node.args[0].kind, node.args[1].kind):
            return None
        difference = nodes.subtract(*node.args)
        if not holds:
            difference = nodes.subtract(nodes.const(-1), difference)
        moving, rest = _parted(difference)
        if len(moving) != 1:
            return None
        lesser = _negated(moving[0])
        number = moving[0] if lesser is None else lesser
        found = self._tree.quotient(number)
        if found is None:
            return None
        side, unit, offset = found
        letter = "q" if side == "q_idx" else "k"
        if lesser is None:
            limit = nodes.subtract(nodes.mul(nodes.negate(rest), unit), offset)
            known = limit.op == "const" and cast(int, limit.data) <= 0
            return [DigitClause() if known else DigitClause(bounds=((f"{letter}_low", limit),))]
        last = nodes.subtract(nodes.mul(nodes.add(rest, nodes.const(1)), unit), nodes.const(1))
        limit = nodes.subtract(last, offset)
        if limit.op == "const" and cast(int, limit.data) < 0:
            return []
        return [DigitClause(bounds=((f"{letter}_high", limit),))]

    def _sum(self, difference: Node) -> list[DigitClause]:
        """`difference >= 0` for two numbers that are compared digit by digit."""
        moving, rest = _parted(difference)
        low = next((term for term in moving if _negated(term) is not None), None)
        high = next((term for term in moving if term is not low), None)
        if len(moving) != 2 or low is None or high is None:
            raise NotDigits("a sum of positions")
        upper, above = self._number(high)
        lower, below = self._number(cast(Node, _negated(low)))
        gap = _collected(rest, nodes.negate(above), below)
        if upper.side == lower.side or upper.paths != lower.paths or gap not in (_ZERO, _LESS):
            raise NotDigits("a distance across digits")
        return self._ordered(upper.side, upper.paths, strict=gap == _LESS)

    def _number(self, node: Node) -> tuple[Coordinate, Node]:
        """A number by its digits, and the offset added to the index before: the number is an index
        plus that offset, or a part of it."""
        if node.op == "index":
            side = cast(Index, node.data)
            found, offset = self._tree.coordinate(self._tree.roots[side]), self._tree.offset(side)
        else:
            found, offset = self._tree.coordinate(node), _ZERO
        if found is None:
            raise NotDigits("a sum of positions")
        return found, offset

    def _ordered(self, greater: Index, paths: Paths, *, strict: bool) -> list[DigitClause]:
        """One number is at least (or above) the other: the first digit that differs decides."""
        marks = {"q_idx": nodes.Q, "kv_idx": nodes.K}
        more = marks[greater]
        less = nodes.K if more is nodes.Q else nodes.Q
        clauses: list[DigitClause] = []
        for number, path in enumerate(paths):
            last = number == len(paths) - 1
            step = nodes.ge(more, less) if last and not strict else nodes.gt(more, less)
            same = [((before,), nodes.eq(nodes.Q, nodes.K)) for before in paths[:number]]
            clauses.append(DigitClause(axes=(*same, ((path,), step))))
        return clauses


def _signed(node: Node, holds: bool) -> Node:
    return node if holds else nodes.negation(node)


def _any(parts: list[list[DigitClause]]) -> list[DigitClause]:
    return _within_budget([clause for part in parts for clause in part])


def _all(parts: list[list[DigitClause]]) -> list[DigitClause]:
    product = [DigitClause()]
    for part in parts:
        product = _within_budget([left.joined(right) for left in product for right in part])
    return product


def _within_budget(clauses: list[DigitClause]) -> list[DigitClause]:
    distinct = list(dict.fromkeys(clauses))
    if len(distinct) > CLAUSE_BUDGET:
        raise OverBudget(f"more than {CLAUSE_BUDGET} clauses")
    return distinct


def _negated(term: Node) -> Node | None:
    """x, for the term -x."""
    minus = nodes.negate(term)
    return None if minus.op == "mul" else minus


def _parted(total: Node) -> tuple[list[Node], Node]:
    """The terms of a sum that depend on positions, and the sum of the others."""
    terms = terms_of(total)
    moving = [term for term in terms if positions(term)]
    return moving, nodes.add(*[term for term in terms if not positions(term)])


def _collected(*summands: Node) -> Node:
    """A sum with like terms added up."""
    total: dict[Node, int] = {}
    for term in terms_of(nodes.add(*summands)):
        number, rest = factors(term)
        product = nodes.mul(*rest) if rest else nodes.const(1)
        total[product] = total.get(product, 0) + number
    return nodes.add(*[nodes.mul(nodes.const(n), node) for node, n in total.items() if n])
