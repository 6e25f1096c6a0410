"""Comparisons of integers, arranged so that sums with entries of tensors do not overflow.

`x > y` is stored as `x >= y + 1`, and proofs move terms from side to side. An entry may be the
smallest or the largest integer of its dtype, to which nothing can be added.
"""

from __future__ import annotations

from typing import Final, cast

from . import nodes
from .meaning import BITWISE
from .nodes import Node
from .separation import positions, terms_of

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
    """A comparison of integers with all terms that read only the key index on one side.

    If all terms read only the key index, or none does, each goes to the side where it is added.
    """
    difference = nodes.subtract(*node.args)
    number = number_of(difference)
    terms = [term for term in terms_of(difference) if term.op != "const"]
    keyed = [term for term in terms if positions(term) == {"kv_idx"}]
    rest = [term for term in terms if positions(term) != {"kv_idx"}]
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


def number_of(node: Node) -> int:
    """The constant of an integer sum, 0 where it has none."""
    return sum(cast(int, term.data) for term in terms_of(node) if term.op == "const")


def is_negative(term: Node) -> bool:
    """Whether a term is a negative number, or has one as a factor."""
    factors = term.args if term.op == "mul" else (term,)
    return any(f.op == "const" and cast(float, f.data) < 0 for f in factors)


def holds_entry(node: Node) -> bool:
    """Whether an integer may be as large as an entry of a tensor or as a truncated real number."""
    if node.op in ("read", "trunc") or node.kind != "int":
        return node.op in ("read", "trunc") and node.kind == "int"
    args = node.args[1:] if node.op in ("where", "member") else node.args
    return node.op != "step" and any(map(holds_entry, args))


def entry_of(node: Node) -> Node | None:
    """The only term of a sum that may be as large as an entry, if it is no sum and no multiple."""
    entries = [term for term in node.args if holds_entry(term)] if node.op == "add" else []
    if len(entries) != 1:
        return None
    entry = nodes.negate(entries[0]) if is_negative(entries[0]) else entries[0]
    return None if entry.op == "mul" or adds_to_entry(entry) else entries[0]


def adds_to_entry(node: Node) -> bool:
    """Whether something is added to an integer that may be as large as an entry.

    A quotient of a sum is computed from the quotient of its entry (`codegen/text/integers.py`), and
    an index is clamped to the ends of its table.
    """
    if node.op in ("read", "step", "member"):
        return False
    if node.op in ("floordiv", "mod") and entry_of(node.args[0]) is not None:
        return may_stay_as_large(node) or adds_to_entry(node.args[1])
    return (node.op == "add" and holds_entry(node)) or any(map(adds_to_entry, node.args))


def may_stay_as_large(node: Node) -> bool:
    """Whether a quotient may equal its dividend: the divisor is not known to exceed 1."""
    divisor = node.args[1]
    return node.op == "floordiv" and (divisor.op != "const" or cast(int, divisor.data) <= 1)


def outgrows_entries(node: Node) -> bool:
    """Whether integer arithmetic may leave the dtype of the entries it reads.

    True for a multiple of an entry, a sum of two entries, and a sum with an entry that is divided.
    True for a comparison of two entries with a sum among them, of the negative of one (`-a[q] <
    kv_idx`), and of two that is computed as a sum (`a[q] >= -b[q]`). False for a sum of one entry
    and positions that is compared with positions, for there the entry can be clamped; and for the
    quotient of such a sum.
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
    count = sum(holds_entry(term) for side in node.args for term in terms_of(side))
    if count and any(map(_outgrows_entry, arranged(node).args)):
        return True
    return count > 1 and any(map(adds_to_entry, node.args))


def _outgrows_entry(side: Node) -> bool:
    """Whether a side of an arranged comparison adds two entries, or is the negative of one."""
    entries = [term for term in terms_of(side) if holds_entry(term)]
    return len(entries) > 1 or (side in entries and is_negative(side))
