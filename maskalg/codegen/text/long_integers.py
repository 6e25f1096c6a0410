"""Integers past 64 bits as Triton source: calls of `kernels/long_integers.py`.

If numbers and tables may exceed 64 bits (`Style.limbs`), the formula alone decides which integers
are computed this way: products, sums of several entries, and quotients of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from ...engine.extents import MOST_OF_ENTRY
from ...formula.comparisons import adds_to_entry, arranged, holds_entry, outgrows_entries
from ...formula.meaning import OPERATIONS
from ...formula.nodes import Node
from ...formula.separation import scaled, terms_of

if TYPE_CHECKING:
    from .triton import TritonText

LIMBS: Final = 2
"""Of the integers that kernels compute."""
_MOST_BITS: Final = 127
MOST_WIDE: Final = 2**61
"""The largest part of an entry that kernels of 64 bits add."""

IMPORTS: Final = """\
from maskalg_kernels.long_integers import long_add, long_and, long_at_least, long_equal
from maskalg_kernels.long_integers import long_floor_div, long_floor_mod, long_maximum
from maskalg_kernels.long_integers import long_minimum, long_multiply, long_near, long_number
from maskalg_kernels.long_integers import long_of, long_or, long_real, long_where, long_xor
"""

_COMPARED: Final = ("ge", "gt", "eq")
_FUNCTIONS: Final = {name: row.long for name, row in OPERATIONS.items()}


def compares_integers(node: Node) -> bool:
    return node.op in _COMPARED and all(arg.kind == "int" for arg in node.args)


def roots(node: Node) -> Iterator[Node]:
    """The comparisons of integers in a formula, and the integers that are not part of others."""
    if compares_integers(node):
        yield node
        below = [arg for side in node.args for arg in _ends(side)]
    elif node.kind == "int":
        yield node
        below = list(node.args) if node.op == "trunc" else list(_ends(node))
    else:
        below = list(node.args)
    for arg in below:
        yield from roots(arg)


def _ends(node: Node) -> Iterator[Node]:
    """Operands of integers that start formulas of their own: conditions, reals and indices."""
    if node.kind != "int" or node.op == "trunc":
        yield node
    elif node.op in ("read", "step", "member"):
        yield from node.args
    else:
        for arg in node.args:
            yield from _ends(arg)


def is_long(node: Node, *, wide: bool) -> bool:
    """Whether a root is computed in 128 bits if 64 may not be enough."""
    if not compares_integers(node):
        return _grows(node, wide=wide)
    if outgrows_entries(node):
        return True
    terms = [term for side in node.args for term in terms_of(side)]
    return any(_grows(_without_sign(term), wide=wide) for term in terms)


def _grows(node: Node, *, wide: bool) -> bool:
    if node.kind != "int":
        return False
    if node.op == "const":
        return abs(cast(int, node.data)) >= 2**31
    if node.op == "mul" or outgrows_entries(node):
        return True
    if node.op in ("floordiv", "mod") and wide and adds_to_entry(node.args[0]):
        return True
    if node.op == "add":
        return any(_grows(_without_sign(term), wide=wide) for term in node.args)
    if node.op in ("read", "step", "member", "trunc"):
        return False
    return any(_grows(arg, wide=wide) for arg in node.args)


def _without_sign(term: Node) -> Node:
    """x, for a term x or -x: sums subtract it, however large it is."""
    factor, rest = scaled(term)
    return rest if factor == -1 else term


def most_bits(root: Node) -> int:
    """The most bits of a root, without the sign; estimates of quotients need one more bit."""
    return _MOST_BITS - any(part.op in ("floordiv", "mod") for part in root.walk())


def compared(text: TritonText, node: Node) -> str:
    """A comparison of integers, exactly."""
    node = arranged(node)
    left, right = (_long(text, side) for side in node.args)
    if node.op == "gt":
        return f"(~long_at_least({right}, {left}))"
    return f"long_{'at_least' if node.op == 'ge' else 'equal'}({left}, {right})"


def near(text: TritonText, node: Node) -> str:
    """An integer clamped near the positions that it is compared with, still beyond them."""
    most = MOST_WIDE if text.wide else MOST_OF_ENTRY
    return f"long_near({_long(text, node)}, {most}).to({text.integer})"


def real(text: TritonText, node: Node) -> str:
    """An integer as a real number."""
    return f"long_real({_long(text, node)}).to(tl.float32)"


def _long(text: TritonText, node: Node) -> str:
    if node.op == "const":
        number = cast(int, node.data)
        low, high = number & (2**64 - 1), number >> 64
        return f"long_number({low - 2**64 if low >= 2**63 else low}, {high})"
    if not holds_entry(node) and not _grows(node, wide=text.wide):
        return f"long_of({text(node)})"
    if node.op == "where":
        condition, then, otherwise = node.args
        return f"long_where({text(condition)}, {_long(text, then)}, {_long(text, otherwise)})"
    function = _FUNCTIONS.get(node.op)
    if function is None:
        return f"long_of({text(node)})"
    parts = [_long(text, arg) for arg in node.args]
    return reduce(lambda total, part: f"{function}({total}, {part})", parts)
