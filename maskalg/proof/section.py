"""A clause as a section: one index is eliminated position by position.

Closed forms decide a whole tile at once; a section decides each of its keys (or each of its
queries). A query keeps the key if it lies between two bounds and its entry satisfies a condition on
the key's: equal, not less, or allowed by a table. One pass over the positions prepares this, and
each position of a tile is then decided by a look-up instead of a column of elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.separation import separated
from .closed_forms import Relation, Section
from .literals import Alone, AtLeastZero, Clause, Congruence, Equal, Literal, Opaque, Related
from .signs import Signs, isolate
from .symbols import Symbols, k, q

_MOST_UNEQUAL: Final = 3


@dataclass
class _Draft:
    own: str
    other: str
    lows: list[Node] = field(default_factory=list)
    highs: list[Node] = field(default_factory=list)
    others: list[Node] = field(default_factory=list)
    members: list[Node] = field(default_factory=list)
    equal: list[tuple[Node, Node, bool]] = field(default_factory=list)
    order: list[tuple[Node, Node]] = field(default_factory=list)
    distances: list[Node] = field(default_factory=list)
    relations: dict[tuple[Node, Node], list[Node]] = field(default_factory=dict)

    def complete(self) -> Section | None:
        """The section; None if its parts cannot be decided together."""
        counted = bool(self.equal) and not self._equal_as_ordered()
        several = counted + bool(self.order) + bool(self.distances) + len(self.relations)
        unequal = sum(not holds for _, _, holds in self.equal)
        if several > 1 or unequal > _MOST_UNEQUAL or not self._one_order():
            return None
        if self.distances and self.members:
            return None
        relation = None
        for (f, g), parts in self.relations.items():
            relation = Relation(nodes.conjunction(*_tidied(parts)), self.own, f, g)
        return Section(
            self.own,
            self.other,
            lows=_tidied(self.lows),
            highs=_tidied(self.highs),
            others=_tidied(self.others),
            members=_tidied(self.members),
            equal=tuple(dict.fromkeys(self.equal)),
            order=tuple(sorted(dict.fromkeys(self.order), key=repr)),
            distances=_tidied(self.distances),
            relation=relation,
        )

    def _equal_as_ordered(self) -> bool:
        """Whether each equality is about the function that orders limit, with at most one !=."""
        bases = self._bases()
        unequal = sum(not holds for _, _, holds in self.equal)
        return bool(bases) and unequal <= 1 and all(f in bases for f, _, _ in self.equal)

    def _one_order(self) -> bool:
        """Whether all orders limit the same function, from below or from above."""
        bases = self._bases()
        return all(f in bases for f, _ in self.order)

    def _bases(self) -> set[Node]:
        """The function that the first order limits, and its negative."""
        return {base for f, _ in self.order[:1] for base in (f, nodes.negate(f))}


def section_of(clause: Clause, signs: Signs, symbols: Symbols) -> Section | None:
    """The section of a clause by queries or by keys; None if neither index can be eliminated."""
    return section_by(clause, "q_idx", signs, symbols) or section_by(
        clause, "kv_idx", signs, symbols
    )


def section_by(clause: Clause, own: str, signs: Signs, symbols: Symbols) -> Section | None:
    """The section of a clause that eliminates the index `own`; None if that is not possible."""
    draft = _Draft(own, "kv_idx" if own == "q_idx" else "q_idx")
    if not all(_add(draft, literal, signs, symbols) for literal in clause):
        return None
    return draft.complete()


def formula_of(clause: Clause, symbols: Symbols) -> Node:
    """The clause as one formula over the query and the key index."""
    parts: list[Node] = []
    for literal in clause:
        if isinstance(literal, AtLeastZero):
            if not literal.documents:
                parts.append(nodes.ge(symbols.to_node(literal.expression), nodes.const(0)))
            continue
        if isinstance(literal, Congruence):
            node = congruence_formula(literal, symbols)
        else:
            node = literal_formula(literal)
        parts.append(node if literal.holds else nodes.negation(node))
    return nodes.conjunction(*_tidied(parts))


def literal_formula(literal: Alone | Equal | Related | Opaque) -> Node:
    """The formula of a literal, without its `holds`."""
    if isinstance(literal, Equal):
        return nodes.eq(literal.left, literal.right)
    if isinstance(literal, Related):
        return nodes.substitute(literal.relation, {nodes.Q: literal.f, nodes.K: literal.g}.get)
    return literal.node


def congruence_formula(literal: Congruence, symbols: Symbols) -> Node:
    """The formula of a congruence, without its `holds`."""
    offset, modulus, residue = map(
        symbols.to_node, (literal.offset, literal.modulus, literal.residue)
    )
    distance = nodes.add(nodes.subtract(nodes.Q, nodes.K), offset)
    return nodes.eq(nodes.mod(distance, modulus), residue)


def _add(draft: _Draft, literal: Literal, signs: Signs, symbols: Symbols) -> bool:
    if isinstance(literal, AtLeastZero):
        # Inequalities of document tables follow from an equality, which is exact.
        return bool(literal.documents) or _bound(draft, literal.expression, signs, symbols)
    if isinstance(literal, Alone):
        return _condition(draft, literal)
    if isinstance(literal, Equal):
        _equality(draft, literal.left, literal.right, literal.holds)
        return True
    if isinstance(literal, Related):
        pair = (literal.f, literal.g) if draft.own == "q_idx" else (literal.g, literal.f)
        node = literal.relation if literal.holds else nodes.negation(literal.relation)
        draft.relations.setdefault(pair, []).append(node)
        return True
    if isinstance(literal, Congruence):
        offset, modulus, residue = (
            symbols.to_node(part) for part in (literal.offset, literal.modulus, literal.residue)
        )
        by_query = nodes.mod(nodes.add(nodes.Q, offset), modulus)
        by_key = nodes.mod(nodes.add(nodes.K, residue), modulus)
        _equality(draft, by_query, by_key, literal.holds)
        return True
    return False


def _equality(draft: _Draft, by_query: Node, by_key: Node, holds: bool) -> None:
    pair = (by_query, by_key) if draft.own == "q_idx" else (by_key, by_query)
    draft.equal.append((*pair, holds))


def _condition(draft: _Draft, literal: Alone) -> bool:
    node = literal.node if literal.holds else nodes.negation(literal.node)
    if literal.index == "distance":
        draft.distances.append(node)
    else:
        (draft.members if literal.index == draft.own else draft.others).append(node)
    return True


def _bound(draft: _Draft, expression: Any, signs: Signs, symbols: Symbols) -> bool:
    own, other = (q, k) if draft.own == "q_idx" else (k, q)
    if not expression.has(own):
        draft.others.append(nodes.ge(symbols.to_node(expression), nodes.const(0)))
        return True
    bound = isolate(expression, own, signs)
    if bound is not None:
        side = draft.lows if bound[0] == "low" else draft.highs
        side.append(symbols.to_node(bound[1]))
        return True
    node = symbols.to_node(expression)
    if not expression.has(other):
        draft.members.append(nodes.ge(node, nodes.const(0)))
        return True
    parts = separated(node, draft.own)
    if parts is None:
        return False
    draft.order.append(parts)
    return True


def _tidied(parts: list[Node]) -> tuple[Node, ...]:
    return tuple(sorted(dict.fromkeys(parts), key=repr))
