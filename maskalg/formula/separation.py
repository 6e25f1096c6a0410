"""The parts of a formula that read positions, and comparisons split by them.

There are conditions on one index or on the distance; equalities between a function of the query and
one of the key; and comparisons of minima, maxima and `where`, rewritten without these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from . import nodes
from .nodes import Node

Index = Literal["q_idx", "kv_idx"]
POSITIONS: Final = frozenset({"q_idx", "kv_idx"})


def positions(node: Node) -> frozenset[str]:
    """Which of query and key index the formula reads."""
    return node.indices() & POSITIONS


def index_of(node: Node) -> str | None:
    """ "q_idx", "kv_idx" or "distance" when a formula depends on that alone, else None.

    A formula of neither index counts as one of the key.
    """
    found = positions(node)
    if len(found) < 2:
        return next(iter(found), "kv_idx")
    return "distance" if by_distance(node, apart=True) else None


def is_set(node: Node) -> bool:
    """Whether a comparison of integers is better taken as a set than as inequalities.

    True if it depends on one index alone, or on the distance, through a remainder or a table.
    """
    if not (has_mod(node) or any(n.op == "read" and positions(n) for n in node.walk())):
        return False
    return index_of(node) is not None


def has_mod(node: Node) -> bool:
    """Whether a remainder reads a position."""
    return any(inner.op == "mod" and positions(inner) for inner in node.walk())


def equal_sides(node: Node) -> tuple[Node, Node] | None:
    """An equality as (function of the query, function of the key), or None.

    A remainder of a sum of such functions is one remainder on each side.
    """
    left, right = node.args
    kinds = {left.kind, right.kind}
    if "real" in kinds:
        return None
    if "bool" in kinds:
        return _by_query_and_key(left, right)
    for remainder, wanted in ((left, right), (right, left)):
        if remainder.op == "mod" and not positions(wanted):
            return _remainder_sides(remainder, wanted)
    parts = separated(nodes.subtract(left, right))
    if parts is None:
        return None
    by_query, rest = parts
    if all(scaled(term)[0] < 0 for term in terms_of(by_query)):  # -a == -b is a == b
        return nodes.negate(by_query), rest
    return by_query, nodes.negate(rest)


def related(node: Node) -> tuple[Node, Node, Node] | None:
    """(R, f, g) with node = R(f(q), g(k)), where R reads small tables at its two indices.

    Examples are a table of pairs of categories, and a block table. R is written over the query and
    the key index. None when the indices occur elsewhere, or when f and g are the positions
    themselves.
    """
    if "read" not in node.ops():
        return None
    pairs = [read for read in node.walk() if read.op == "read" and len(positions(read)) == 2]
    arguments = {
        index: {arg for read in pairs for arg in read.args if positions(arg) == {index}}
        for index in POSITIONS
    }
    if any(len(found) != 1 for found in arguments.values()):
        return None
    (f,), (g,) = arguments["q_idx"], arguments["kv_idx"]
    if _is_position(f) and _is_position(g):
        return None
    # In R the indices stand for categories, so a position beside them would be taken for one.
    if positions(nodes.substitute(node, {f: nodes.BATCH, g: nodes.HEAD}.get)):
        return None
    places = {f: nodes.Q, g: nodes.K}
    relation = nodes.substitute(node, places.get)
    inside = all(
        inner.op == "read" or not any(arg in (nodes.Q, nodes.K) for arg in inner.args)
        for inner in relation.walk()
    )
    return (relation, f, g) if inside and relation.op != "index" else None


def _is_position(node: Node) -> bool:
    """Whether a part is an index, shifted or not: every position is then its own category."""
    return any(term in (nodes.Q, nodes.K) for term in terms_of(node))


def separated(node: Node, index: str = "q_idx") -> tuple[Node, Node] | None:
    """A sum as the part that reads `index` and the rest, which does not; None if mixed."""
    terms = terms_of(node)
    if any(len(positions(term)) == 2 for term in terms):
        return None
    reading = [term for term in terms if positions(term) == {index}]
    rest = [term for term in terms if positions(term) != {index}]
    return nodes.add(*reading), nodes.add(*rest)


def one_family(by_query: Node, by_key: Node) -> bool:
    """Whether step tables can be made of two reads: by batch (or head) at most, the same for both.

    A key position that a tensor shifts is excluded: it may leave the table, where reads are clamped
    but step tables are not.
    """
    leading = {arg for read in (by_query, by_key) for arg in read.args[:-1]}
    if len(by_query.args) > 2 or len(by_key.args) > 2 or len(leading) > 1:
        return False
    if any(arg.op != "index" for arg in leading):
        return False
    return not any(node.op == "read" for node in by_key.args[-1].walk())


def depends(read: Node, on: str, not_on: str) -> bool:
    """Whether a read's last index depends on `on`, and none of its indices on `not_on`."""
    if not read.args:
        return False
    earlier = frozenset().union(*(arg.indices() for arg in read.args[:-1]))
    last = read.args[-1].indices()
    return on in last and not_on not in last and not (earlier & {"q_idx", "kv_idx"})


def _by_query_and_key(left: Node, right: Node) -> tuple[Node, Node] | None:
    for one, other in ((left, right), (right, left)):
        if positions(one) <= {"q_idx"} and positions(other) <= {"kv_idx"}:
            return one, other
    return None


def _remainder_sides(remainder: Node, wanted: Node) -> tuple[Node, Node] | None:
    """(a(q) + b(k)) mod m == r as a mod m == r', where r' is a remainder of r - b if r is one."""
    inside, modulus = remainder.args
    parts = separated(inside)
    if parts is None or positions(modulus):
        return None
    other = nodes.mod(nodes.subtract(wanted, parts[1]), modulus)
    possible = nodes.conjunction(nodes.ge(wanted, nodes.const(0)), nodes.gt(modulus, wanted))
    # A number that cannot be a remainder equals none of them: -1 stands for it.
    return nodes.mod(parts[0], modulus), nodes.where(possible, other, nodes.const(-1))


def terms_of(node: Node) -> tuple[Node, ...]:
    """The terms of a sum; anything else is one term."""
    return node.args if node.op == "add" else (node,)


def split_extremum(difference: Node, *, mixed: bool = False) -> Node | None:
    """`difference >= 0` without its first outer minimum or maximum, as a formula; None if none.

    With `mixed`, only those that read both positions are removed.
    """
    terms = terms_of(difference)
    for place, term in enumerate(terms):
        factor, inner = scaled(term)
        least = 2 if mixed else 1
        if inner.op not in ("min", "max") or len(positions(inner)) < least:
            continue
        rest = terms[:place] + terms[place + 1 :]
        cases = [
            nodes.ge(nodes.add(*rest, nodes.mul(nodes.const(factor), arg)), nodes.const(0))
            for arg in inner.args
        ]
        either = (inner.op == "max") == (factor > 0)
        return nodes.disjunction(*cases) if either else nodes.conjunction(*cases)
    return None


def split_where(node: Node) -> Node | None:
    """A comparison over `where`, or over a nested extremum, by cases; None if there is none."""
    for inner in node.walk():
        if inner.op == "where" and positions(inner):
            condition, then, otherwise = inner.args
        elif inner.op in ("min", "max") and positions(inner):
            then, otherwise = inner.args[0], nodes.rebuild(inner, inner.args[1:])
            order = (then, otherwise) if inner.op == "max" else (otherwise, then)
            condition = nodes.ge(*order)
        else:
            continue
        yes = nodes.substitute(node, _replacing(inner, then))
        no = nodes.substitute(node, _replacing(inner, otherwise))
        return nodes.disjunction(
            nodes.conjunction(condition, yes),
            nodes.conjunction(nodes.negation(condition), no),
        )
    return None


def _replacing(target: Node, replacement: Node) -> Callable[[Node], Node | None]:
    return lambda node: replacement if node == target else None


def scaled(term: Node) -> tuple[int, Node]:
    """A term as an integer factor and the rest."""
    if term.op == "mul" and len(term.args) == 2:
        for factor, rest in (term.args, term.args[::-1]):
            if factor.op == "const" and isinstance(factor.data, int):
                return factor.data, rest
    return 1, term


def has_extremum(node: Node) -> bool:
    """Whether a minimum or a maximum reads a position."""
    return any(inner.op in ("min", "max") and positions(inner) for inner in node.walk())


def by_distance(node: Node, *, apart: bool = False) -> bool:
    """Whether the value stays the same when q and k move together; False if that is not evident.

    Sums of real numbers do not count: they round differently for pairs of the same distance. With
    `apart`, each side of a comparison must stay the same by itself.
    """
    if node.op == "index":
        return node.data not in POSITIONS
    if node.op in ("ge", "gt", "eq") and not apart and all(a.kind != "bool" for a in node.args):
        return by_distance(nodes.subtract(*node.args))
    if node.op != "add" or node.kind != "int":
        return all(by_distance(arg, apart=apart) for arg in node.args)
    terms = [scaled(term) for term in node.args]
    rest = [part for _, part in terms if part not in (nodes.Q, nodes.K)]
    moved = sum(factor for factor, part in terms if part in (nodes.Q, nodes.K))
    return moved == 0 and all(by_distance(part, apart=apart) for part in rest)
