"""Integer arithmetic as Triton source: comparisons on vectors, and entries that do not overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...engine.extents import MOST_OF_ENTRY
from ...formula import nodes
from ...formula.comparisons import (
    arranged,
    entry_of,
    holds_entry,
    is_negative,
    may_stay_as_large,
    outgrows_entries,
    strict,
)
from ...formula.nodes import Node
from ...formula.separation import positions, split_extremum, terms_of
from . import long_integers, reals

if TYPE_CHECKING:
    from .triton import TritonText


def split(node: Node) -> Node | None:
    """A comparison with an outer minimum or maximum of both positions, as a formula without it.

    CUDA 13's assembler miscompiles an integer absolute value in a predicate. One of a single
    position is a vector, computed before the predicate.
    """
    left, right = node.args
    difference = nodes.subtract(left, right)
    if node.op == "ge":
        return split_extremum(difference, mixed=True)
    if split_extremum(difference, mixed=True) is None:
        return None
    return nodes.conjunction(nodes.ge(left, right), nodes.ge(right, left))


def sides(node: Node) -> Node:
    """A comparison of integers with all terms of the key index alone on one side.

    Each side is then a vector over queries or over keys, unless a term mixes the two.
    """
    left, right = node.args
    if "read" in (left.op, right.op):
        return strict(node)
    if any(holds_entry(arg) for arg in node.args):
        return arranged(node)
    difference = nodes.subtract(left, right)
    if node.op == "eq" and (equal := _equal_remainders(difference)) is not None:
        return equal
    terms = terms_of(difference)
    keyed = [term for term in terms if term.indices() == {"kv_idx"}]
    rest = [term for term in terms if term.indices() != {"kv_idx"}]
    if keyed and not is_negative(keyed[0]):
        keyed, rest = rest, keyed
    return Node(node.op, "bool", (nodes.add(*rest), nodes.negate(nodes.add(*keyed))))


def _equal_remainders(difference: Node) -> Node | None:
    """`(q - k) % c == 0` as `q % c == k % c`; None for other differences from 0."""
    factors = difference.args if difference.op == "mul" else (difference,)
    inner = factors[-1]
    if inner.op != "mod" or factors[:-1] not in ((), (nodes.const(-1),)):
        return None
    x, divisor = inner.args
    terms = terms_of(x)
    keyed = [term for term in terms if positions(term) == {"kv_idx"}]
    rest = [term for term in terms if "kv_idx" not in term.indices()]
    apart = keyed and rest and len(keyed) + len(rest) == len(terms)
    if not apart or holds_entry(x) or positions(divisor):
        return None
    left, right = nodes.add(*rest), nodes.negate(nodes.add(*keyed))
    return Node("eq", "bool", (nodes.mod(left, divisor), nodes.mod(right, divisor)))


def _term(text: TritonText, node: Node, *, long: bool) -> str:
    """A term or a factor; an entry is widened or clamped so that it cannot overflow.

    `long` computes in 64 bits. Else an entry beyond all positions is clamped to a number that is
    still beyond them, so comparisons with positions are the same.
    """
    shown = text(node)
    if not holds_entry(node):
        return shown
    if long:
        return f"({shown}).to(tl.int64)"
    most = long_integers.MOST_WIDE if text.wide else MOST_OF_ENTRY
    shown = f"({shown}).to(tl.int64)" if text.wide else shown
    return f"tl.minimum(tl.maximum({shown}, {-most}), {most})"


def compared(text: TritonText, node: Node) -> str:
    """A comparison of integers."""
    extremum = split(node)
    if extremum is not None:
        return text(extremum)
    if text.limbs > 1 and long_integers.is_long(node, wide=text.wide):
        return long_integers.compared(text, node)
    apart = sides(node)
    sign = {"ge": ">=", "gt": ">", "eq": "=="}[apart.op]
    found = _of_one_entry(text, apart)
    if found is not None:
        return f"({found[0]} {sign} {found[1]})"
    long = outgrows_entries(apart)
    text = text.longer(apart) if long else text
    shown = [summed(text, arg, long=long) if arg.op == "add" else text(arg) for arg in apart.args]
    return f"({shown[0]} {sign} {shown[1]})"


def summed(text: TritonText, node: Node, *, long: bool = False) -> str:
    """A sum of integers or of real numbers; `long` if it is compared with entries."""
    if text.exact and node.kind == "real":
        return reals.stepwise(text, node)
    long = long or text.long or outgrows_entries(node)

    def number(term: Node) -> str:
        return text.real(term) if node.kind == "real" else _term(text, term, long=long)

    result = ""
    terms = reals.terms(node) if node.kind == "real" else node.args
    for term in sorted(terms, key=lambda t: (t.op == "const", is_negative(t))):
        if is_negative(term):
            positive = nodes.negate(term)
            result = f"{result} - {number(positive)}" if result else f"(-{number(positive)})"
        else:
            result = f"{result} + {number(term)}" if result else number(term)
    return f"({result})"


def floored(text: TritonText, node: Node) -> str | None:
    """A quotient or a remainder of a sum p + e with one entry e, for any e. None for other numbers,
    and if 64 bits hold the quotient.

    e = c * a + r, so that (p + e) // c is a + (p + r) // c, and the remainders are equal.
    """
    x, c = node.args
    term = entry_of(x)
    if term is None or text.wide or (text.long and may_stay_as_large(node)):
        return None
    shown, sign = _signed(text, term)
    by, (last, whole) = text(c), _lowered(text, x, term, c)
    if node.op == "mod":
        return f"floor_mod({last}, {by})"
    left, right = f"floor_div({last}, {by}){whole}", f"floor_div({shown}, {by})"
    if c.op == "const" and cast(int, c.data) > 1:
        return f"({left} {sign} {right})"
    # Divided by 1, the largest entry stays as large.
    return f"saturated({left}, {right})" if sign == "+" else f"saturated({left} + 1, ~{right})"


def _lowered(text: TritonText, x: Node, term: Node, c: Node) -> tuple[str, str]:
    """A sum with e mod c in place of its entry e, and the correction of the sum's quotient by c.

    If c may be as large as an entry, so may the remainder. Then c is subtracted from it wherever
    the sum could overflow, and the correction adds 1 to the quotient there.
    """
    shown, sign = _signed(text, term)
    rest, by = _rest(text, x, term), text(c)
    remainder = f"floor_mod({shown}, {by})"
    if not holds_entry(c):
        return f"({rest} {sign} {remainder})", ""
    grows = f"({rest} {'>' if sign == '+' else '<'} 0)"
    lowered = f"({rest} {sign} ({remainder} - tl.where({grows}, {by}, 0)))"
    return lowered, f" {sign} tl.where({grows}, 1, 0)"


def _of_one_entry(text: TritonText, node: Node) -> list[str] | None:
    """The sides of a comparison of (p + e) // c with (x + e) // c, both without the multiple of c
    in the entry e; None for other comparisons."""
    if text.wide or any(side.op != "floordiv" for side in node.args):
        return None
    (x, c), (y, d) = [side.args for side in node.args]
    term = entry_of(x)
    if c != d or term is None or term != entry_of(y):
        return None
    found = [_lowered(text, side, term, c) for side in (x, y)]
    return [f"floor_div({last}, {text(c)}){whole}" for last, whole in found]


def real_sum(text: TritonText, node: Node) -> str | None:
    """A sum with one entry as a real number of a bias, for any entry; None for other sums.

    The part of the entry beyond 32 bits, mostly 0, is added as a real number.
    """
    term = entry_of(node)
    if term is None or text.wide or text.exact:
        return None
    shown, sign = _signed(text, term)
    most = MOST_OF_ENTRY
    near = f"tl.minimum(tl.maximum({shown}, {-most}), {most})"
    total = f"({_rest(text, node, term)} {sign} {near}).to(tl.float32)"
    return f"({total} {sign} ({shown} - {near}).to(tl.float32))"


def _signed(text: TritonText, term: Node) -> tuple[str, str]:
    """A term without its sign, and the sign."""
    return (text(nodes.negate(term)), "-") if is_negative(term) else (text(term), "+")


def _rest(text: TritonText, total: Node, term: Node) -> str:
    return text(nodes.add(*[other for other in total.args if other != term]))


def multiplied(text: TritonText, node: Node) -> str:
    """A product of integers; entries are widened, since multiples exceed their dtype.

    Positions from tables of documents are widened, too: they have 32 bits in kernels of 64.
    """
    text = text.longer(node)

    def factor(arg: Node) -> str:
        shown = _term(text, arg, long=True)
        return f"({shown}).to(tl.int64)" if text.wide and "step" in arg.ops() else shown

    return "(" + " * ".join(map(factor, node.args)) + ")"
