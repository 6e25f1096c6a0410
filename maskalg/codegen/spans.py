"""The part of a mask that is one interval of the moving index: bounds a kernel computes once a row.

`k >= f(q)`, `k <= g(q)` and equal ids of contiguous documents together keep the keys
`max f .. min g`: two bounds for a query, and one comparison for each element, however many
conditions there are. Other conditions, such as congruences, are compared element by element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot, common_order
from ..formula.separation import Index
from ..proof.documents import SameDocument, same_document

_PLAIN = ("index", "const", "scalar", "add")


@dataclass(frozen=True)
class Interval:
    """The elements `max(lows) <= index <= min(highs)` that also keep each of `rest`."""

    lows: tuple[Node, ...]
    highs: tuple[Node, ...]
    rest: tuple[Node, ...]


def interval_of(literals: tuple[Node, ...], moving: Index) -> Interval:
    """The interval of the loop's index in a conjunction, and the literals that do not bound it."""
    lows: list[Node] = []
    highs: list[Node] = []
    rest: list[Node] = []
    for literal in literals:
        low, high = _bounds(literal, moving)
        lows += low
        highs += high
        if not low and not high:
            rest.append(literal)
    return Interval(tuple(lows), tuple(highs), tuple(rest))


def _bounds(literal: Node, moving: Index) -> tuple[list[Node], list[Node]]:
    """Bounds of the loop's index that are equivalent to the literal; none for other literals."""
    if literal.op not in ("ge", "eq") or any(arg.kind != "int" for arg in literal.args):
        return [], []
    difference = nodes.subtract(*literal.args)
    terms = difference.args if difference.op == "add" else (difference,)
    moved = [term for term in terms if moving in term.indices()]
    others = nodes.add(*[term for term in terms if moving not in term.indices()])
    index = nodes.K if moving == "kv_idx" else nodes.Q
    if moved == [index]:
        bound = nodes.negate(others)
        return [bound], [bound] if literal.op == "eq" else []
    if moved == [nodes.negate(index)]:
        return ([others] if literal.op == "eq" else []), [others]
    return [], []


def contiguous(mask: Node, moving: Index) -> tuple[Node, tuple[Node, ...]] | None:
    """A mask with bounds in place of comparisons of ids; it is the same mask if no flag is 0.

    If equal ids are contiguous, a query keeps the interval of keys from its document's first to its
    last. If that is declared, there are no flags. None for a mask without documents.
    """
    flags: dict[Node, None] = {}

    def bounded(node: Node) -> Node | None:
        same = _bounded_document(node, moving)
        if same is None:
            return None
        if moving == "kv_idx":
            low, high = same.table("first"), same.table("last")
            at = same.of_key.args[-1]
        else:
            low, high = same.queries()
            at = nodes.Q
        own = (*same.of_query.own, *same.of_key.own)
        if common_order(*own) is None:
            flags[Node("step", "int", (), "contiguous", own)] = None
        return nodes.conjunction(nodes.ge(at, low), nodes.ge(high, at))

    result = nodes.substitute(mask, bounded)
    return None if result is mask else (result, tuple(flags))


@lru_cache(maxsize=4096)
def compared_ids(mask: Node) -> tuple[Slot, ...]:
    """The ids that `contiguous` replaces by bounds, and that may lie in any order."""
    bounded = contiguous(mask, "kv_idx")
    flags = () if bounded is None else bounded[1]
    found = [slot for flag in flags for slot in flag.own if isinstance(slot, Slot)]
    return tuple(dict.fromkeys(found))


def equal_ids(mask: Node, moving: Index) -> tuple[Node, ...]:
    """The comparisons of ids that `contiguous` replaces, if the mask implies each of them.

    Bounds keep every pair with equal ids. So the mask with bounds, and these comparisons, is the
    mask itself, contiguous or not. Empty if the mask keeps pairs of different documents.
    """
    found = [node for node in mask.walk() if _bounded_document(node, moving) is not None]
    conjuncts = mask.args if mask.op == "and" else (mask,)
    return tuple(dict.fromkeys(found)) if set(found) <= set(conjuncts) else ()


def within_document(mask: Node) -> SameDocument | None:
    """The comparison of documents that holds in every pair that the mask keeps.

    Its ids are one table, are declared contiguous, and are read at the plain positions.
    """
    for node in mask.args if mask.op == "and" else (mask,):
        same = _bounded_document(node, "kv_idx")
        if same is None:
            continue
        reads, places = (same.of_query, same.of_key), (nodes.Q, nodes.K)
        plain = all(read.args[-1] == place for read, place in zip(reads, places, strict=True))
        own = same.of_query.own[0] is same.of_key.own[0]
        if own and plain and common_order(*same.of_query.own, *same.of_key.own) is not None:
            return same
    return None


def packed_ids(mask: Node) -> Slot | None:
    """The ids `[length]` of `within_document`, if they form one row."""
    same = within_document(mask)
    if same is None or same.of_query.args[:-1]:
        return None
    return cast(Slot, same.of_query.own[0])


def _bounded_document(node: Node, moving: Index) -> SameDocument | None:
    """The reads of a comparison of ids, if kernels have bounds for it."""
    same = same_document(node) if node.op == "eq" else None
    if same is None or not _plain(same):
        return None
    # Else the bounds need inverse tables, which kernels do not get.
    own = same.of_query.own[0] is same.of_key.own[0]
    return same if own or moving == "kv_idx" else None


def _plain(same: SameDocument) -> bool:
    """Whether both ids are read at an index plus a number at most, so inside of the tables."""
    positions = (same.of_query.args[-1], same.of_key.args[-1])
    wanted = ({"q_idx"}, {"kv_idx"})
    return all(
        position.indices() == names and all(part.op in _PLAIN for part in position.walk())
        for position, names in zip(positions, wanted, strict=True)
    )
