"""Comparisons of integers: arranged, taken apart, and told to be of distances.

They are arranged so that little is added to what may be at the ends of a dtype. `x > y` is the
formula `x >= y + 1`, and proofs move terms from side to side. Entries of tensors may be the
smallest or the largest integers there are, which leave no room for either. Comparisons over minima,
maxima and `where` are taken apart into comparisons without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from . import nodes
from .nodes import Node
from .operations import BITWISE

POSITIONS: Final = frozenset({"q_idx", "kv_idx"})
_OF_DIGITS: Final = ("floordiv", "mod", *BITWISE)


def strict(node: Node) -> Node:
    """`x >= y + n` as `x > y + (n - 1)` for n >= 1; any other comparison as it is."""
    if node.op != "ge" or any(arg.kind != "int" for arg in node.args):
        return node
    left, right = node.args
    number = number_of(right)
    if number < 1 or (right.op == "const" and number < 2**31):
        return node
    return Node("gt", "bool", (left, nodes.add(right, nodes.const(-1))))


def arranged(node: Node) -> Node:
    """A comparison of integers with what reads the key index, and not the query's, on one side.

    Where only one of the two indices is read, a term stands on the side where it is added.
    """
    difference = nodes.subtract(*node.args)
    number = number_of(difference)
    terms = [term for term in terms_of(difference) if term.op != "const"]
    keyed = [term for term in terms if term.indices() & POSITIONS == {"kv_idx"}]
    rest = [term for term in terms if term.indices() & POSITIONS != {"kv_idx"}]
    if not keyed or not rest:
        rest = [term for term in terms if not is_negative(term)]
        keyed = [term for term in terms if is_negative(term)]
    if keyed and not is_negative(keyed[0]):
        keyed, rest = rest, keyed
    left, right = nodes.add(*rest), nodes.negate(nodes.add(*keyed))
    if node.op == "ge" and number < 0:
        if not rest:
            return Node("gt", "bool", (nodes.const(number + 1), right))
        return Node("gt", "bool", (left, nodes.add(right, nodes.const(-number - 1))))
    if not keyed:
        return Node(node.op, "bool", (left, nodes.const(-number)))
    return Node(node.op, "bool", (nodes.add(left, nodes.const(number)), right))


def terms_of(node: Node) -> tuple[Node, ...]:
    """The terms of a sum; anything else is one term."""
    return node.args if node.op == "add" else (node,)


def number_of(node: Node) -> int:
    """The constant of an integer sum, 0 where it has none."""
    return sum(cast(int, term.data) for term in terms_of(node) if term.op == "const")


def is_negative(term: Node) -> bool:
    """Whether a term is a negative number, or has one as a factor."""
    factors = term.args if term.op == "mul" else (term,)
    return any(f.op == "const" and cast(float, f.data) < 0 for f in factors)


def holds_entry(node: Node) -> bool:
    """Whether an integer may be as large as an entry of a tensor, as a real number's may."""
    if node.op in ("read", "trunc") or node.kind != "int":
        return node.op in ("read", "trunc") and node.kind == "int"
    args = node.args[1:] if node.op in ("where", "member") else node.args
    return node.op != "step" and any(map(holds_entry, args))


def entry_of(node: Node) -> Node | None:
    """The one term of a sum that may be as large as an entry, if that is no sum or multiple."""
    entries = [term for term in node.args if holds_entry(term)] if node.op == "add" else []
    if len(entries) != 1:
        return None
    entry = nodes.negate(entries[0]) if is_negative(entries[0]) else entries[0]
    return None if entry.op == "mul" or adds_to_entry(entry) else entries[0]


def adds_to_entry(node: Node) -> bool:
    """Whether something is added to an integer that may be as large as an entry.

    A sum that is divided by a number is told from that of the entry (`codegen/text/integers.py`).
    """
    if node.op in ("floordiv", "mod") and entry_of(node.args[0]) is not None:
        return may_stay_as_large(node) or adds_to_entry(node.args[1])
    return (node.op == "add" and holds_entry(node)) or any(map(adds_to_entry, node.args))


def may_stay_as_large(node: Node) -> bool:
    """Whether a quotient may be what is divided: by 1, for all that is known of the divisor."""
    divisor = node.args[1]
    return node.op == "floordiv" and (divisor.op != "const" or cast(int, divisor.data) <= 1)


def outgrows_entries(node: Node) -> bool:
    """Whether integer arithmetic may leave the dtype of the entries it is made of.

    So may a multiple, a sum of two, and a sum that is divided or compared with an entry. A sum of
    one entry and of positions that is compared with positions is told by its sign there, and so is
    the quotient of such a sum.
    """
    if node.op in ("floordiv", "mod") and entry_of(node.args[0]) is not None:
        return adds_to_entry(node.args[1])
    if node.op in _OF_DIGITS:
        return adds_to_entry(node)
    if node.op == "mul":
        return node.kind == "int" and any(map(holds_entry, node.args))
    if node.op == "add":
        return sum(map(holds_entry, node.args)) > 1
    if node.op not in ("ge", "gt", "eq"):
        return False
    terms = [term for side in node.args for term in terms_of(side) if holds_entry(term)]
    return len(terms) > 1 and any(map(adds_to_entry, node.args))


def split_extremum(difference: Node, *, mixed: bool = False) -> Node | None:
    """`difference >= 0` without its first outer minimum or maximum, as a formula; None if none.

    With `mixed` those that read one of the positions alone stay.
    """
    terms = terms_of(difference)
    for place, term in enumerate(terms):
        factor, inner = _scaled(term)
        least = 2 if mixed else 1
        if inner.op not in ("min", "max") or len(inner.indices() & POSITIONS) < least:
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
        if inner.op == "where" and _has_position(inner):
            condition, then, otherwise = inner.args
        elif inner.op in ("min", "max") and _has_position(inner):
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


def _scaled(term: Node) -> tuple[int, Node]:
    """A term as an integer factor and the rest."""
    if term.op == "mul" and len(term.args) == 2:
        for factor, rest in (term.args, term.args[::-1]):
            if factor.op == "const" and isinstance(factor.data, int):
                return factor.data, rest
    return 1, term


def _has_position(node: Node) -> bool:
    return bool(node.indices() & POSITIONS)


def has_extremum(node: Node) -> bool:
    return any(inner.op in ("min", "max") and _has_position(inner) for inner in node.walk())


_COMPARISONS = ("ge", "gt", "eq")


def by_distance(node: Node) -> bool:
    """Whether the value stays when q and k move together; False where that is not seen."""
    if node.op == "index":
        return node.data not in ("q_idx", "kv_idx")
    if node.op in _COMPARISONS and not any(arg.kind == "bool" for arg in node.args):
        return by_distance(nodes.subtract(*node.args))
    if node.op == "add" and node.kind == "int":
        terms = [_multiple(term) for term in node.args]
        moved = sum(times for times, index in terms if index in ("q_idx", "kv_idx"))
        others = [arg for arg, (_, index) in zip(node.args, terms, strict=True) if not index]
        return moved == 0 and all(by_distance(arg) for arg in others)
    return all(by_distance(arg) for arg in node.args)


def _multiple(term: Node) -> tuple[int, str]:
    """`term` as a multiple of q or k, else (0, "")."""
    if term.op == "index":
        return 1, cast(str, term.data)
    if term.op == "mul" and len(term.args) == 2:
        index = [arg for arg in term.args if arg.op == "index"]
        times = [arg for arg in term.args if arg.op == "const" and arg.kind == "int"]
        if index and times:
            return cast(int, times[0].data), cast(str, index[0].data)
    return 0, ""
