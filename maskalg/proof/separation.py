"""Which indices the parts of a formula read: conditions on one index, and equalities of two parts.

Decided on the formula, before SymPy sees it.
"""

from __future__ import annotations

from typing import cast

from ..formula import nodes
from ..formula.comparisons import POSITIONS, terms_of
from ..formula.nodes import Node


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
    return "distance" if _of_distance(node) else None


def is_set(node: Node) -> bool:
    """Whether a comparison of integers is better taken as a set than as inequalities.

    So it is when it depends on one index, or on the distance, through a remainder or a table.
    """
    if not (has_mod(node) or any(n.op == "read" and positions(n) for n in node.walk())):
        return False
    return index_of(node) is not None


def has_mod(node: Node) -> bool:
    return any(inner.op == "mod" and positions(inner) for inner in node.walk())


def has_where(node: Node) -> bool:
    return "where" in node.ops()


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
    return None if parts is None else (parts[0], nodes.negate(parts[1]))


def related(node: Node) -> tuple[Node, Node, Node] | None:
    """(R, f, g) with node = R(f(q), g(k)), where R reads small tables at its two indices.

    So do tables of pairs of categories, and block tables. R is written over the query and the key
    index. None when the indices occur elsewhere, or when f and g are the positions themselves.
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
    # The categories stand for positions in R, so a position beside them would be read as one.
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
    """Whether a part is an index, moved or not: as many categories as there are positions."""
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
    # No remainder equals what is none: -1 stands for it.
    return nodes.mod(parts[0], modulus), nodes.where(possible, other, nodes.const(-1))


def _of_distance(node: Node) -> bool:
    """Whether query and key index occur as q - k only, times any whole number.

    Sums of real numbers do not count: they are rounded, and not alike for all pairs of a distance.
    """
    if node.op == "index":
        return node.data not in POSITIONS
    if node.op != "add" or node.kind == "real":
        return all(_of_distance(arg) for arg in node.args) and not _scaled_index(node)
    scales = {"q_idx": 0, "kv_idx": 0}
    rest: list[Node] = []
    for term in node.args:
        scaled = _scaled_index(term)
        if scaled is None:
            rest.append(term)
        else:
            scales[scaled[0]] += scaled[1]
    return scales["q_idx"] + scales["kv_idx"] == 0 and all(_of_distance(term) for term in rest)


def _scaled_index(node: Node) -> tuple[str, int] | None:
    """A query or key index times a whole number."""
    if node.op == "index" and node.data in POSITIONS:
        return str(node.data), 1
    if node.op == "mul" and len(node.args) == 2:
        for factor, index in (node.args, node.args[::-1]):
            if factor.op == "const" and index.op == "index" and index.data in POSITIONS:
                return str(index.data), cast(int, factor.data)
    return None
