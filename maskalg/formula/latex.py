"""Formulas typeset: LaTeX for MathJax, printed from the nodes.

A bound number is printed as a number: `sliding(256)` is `\\lvert q - k \\rvert < 256`. A slot has
no value, and is printed as its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from . import nodes
from .expression import Expression
from .functions import function_of
from .meaning import BITWISE
from .nodes import SCORE, TRUE, Node
from .parameters import Scalar

_INDICES: Final = {
    "q_idx": "q",
    "kv_idx": "k",
    "batch": "b",
    "head": "h",
    "q0": "q_{0}",
    "q1": "q_{1}",
}
_SPECIAL: Final = {
    "\\": r"\backslash ",
    "^": r"\wedge ",
    "~": r"\sim ",
    "<": r"\lt ",
    ">": r"\gt ",
    " ": r"\ ",
    **{character: f"\\{character}" for character in "_{}$&#%"},
}


def index_latex(name: str) -> str:
    """An index by its letter."""
    return _INDICES.get(name) or name_latex(name)


def name_latex(name: str) -> str:
    """A name in upright letters, with its special characters escaped."""
    return rf"\mathrm{{{''.join(_SPECIAL.get(character, character) for character in name)}}}"


def text_latex(text: str) -> str:
    """Words among formulas."""
    return rf"\text{{{''.join(_SPECIAL.get(c, c) if c in '_{}$&#%' else c for c in text)}}}"


Number = int | float


@dataclass(frozen=True)
class Terms:
    """factor * part + ... + bound + adjusted.

    `bound` is the sum of bound scalars, and `adjusted` that of constants: a window of 256 is stored
    as `256 - 1 >= q - k`, and reads best as `q - k < 256`.
    """

    parts: tuple[tuple[Number, Node], ...] = ()
    bound: Number = 0
    adjusted: Number = 0

    @property
    def number(self) -> Number:
        return self.bound + self.adjusted

    def times(self, factor: Number) -> Terms:
        parts = tuple((factor * own, part) for own, part in self.parts)
        return Terms(parts, factor * self.bound, factor * self.adjusted)

    def plus(self, other: Terms) -> Terms:
        """The sum; equal parts are joined."""
        parts = list(self.parts)
        for factor, part in other.parts:
            place = next((i for i, (_, own) in enumerate(parts) if own == part), None)
            if place is None:
                parts.append((factor, part))
            else:
                parts[place] = (parts[place][0] + factor, part)
        left = tuple(pair for pair in parts if pair[0] != 0)
        return Terms(left, self.bound + other.bound, self.adjusted + other.adjusted)

    def minus(self, other: Terms) -> Terms:
        return self.plus(other.times(-1))

    def negated_condition(self) -> Terms:
        """For integers: `self >= 0` fails where this is >= 0."""
        return self.times(-1).plus(Terms(adjusted=-1))

    def split(self) -> tuple[Terms, Terms]:
        """The parts that read a position, and those that do not; without the numbers."""
        moving = tuple(pair for pair in self.parts if pair[1].indices() - {"batch", "head"})
        return Terms(moving), Terms(tuple(pair for pair in self.parts if pair not in moving))


def terms_of(node: Node) -> Terms:
    """A number, a sum or a product as terms; anything else is one term."""
    if node.op == "const" and not isinstance(node.data, bool):
        return Terms(adjusted=cast(Number, node.data))
    if _is_number(node):
        return Terms(bound=_value(node))
    if node.op == "add":
        total = Terms()
        for arg in sorted(node.args, key=_place):
            total = total.plus(terms_of(arg))
        return total
    if node.op == "mul":
        numbers = [arg for arg in node.args if _is_number(arg)]
        rest = [arg for arg in node.args if not _is_number(arg)]
        factor = math.prod(_value(arg) for arg in numbers)
        if not rest:
            return Terms(bound=factor)
        if len(rest) == 1:
            return terms_of(rest[0]).times(factor)
        product = Node("mul", nodes.numeric(rest), tuple(rest))
        return Terms(((factor, product),) if factor else ())
    if node.op == "floordiv":
        above, below = node.args
        if _is_number(below) and _value(below) == 1:
            return terms_of(above)
        if _is_number(above) and _is_number(below) and _value(below) > 0:
            return Terms(bound=_value(above) // _value(below))
    return Terms(((1, node),))


def number_text(number: Number) -> str:
    """A number in LaTeX, to six digits."""
    if isinstance(number, float) and not math.isfinite(number):
        if math.isnan(number):
            return r"\text{nan}"
        return r"\infty" if number > 0 else r"-\infty"
    if not isinstance(number, float):
        return str(number)
    digits, _, exponent = f"{number:.6g}".partition("e")
    return rf"{digits} \cdot 10^{{{int(exponent)}}}" if exponent else digits


_ORDER: Final = {"q_idx": 1, "kv_idx": 2}


def _place(node: Node) -> int:
    """The score comes first, then the query and the key."""
    if node.op == "score":
        return 0
    return _ORDER.get(str(node.data), 3) if node.op == "index" else 3


def _is_number(node: Node) -> bool:
    if node.op == "const":
        return not isinstance(node.data, bool)
    return node.op == "scalar" and isinstance(node.own[0], Scalar)


def _value(node: Node) -> Number:
    if node.op == "const":
        return cast(Number, node.data)
    return cast(Scalar, node.own[0]).value


def bounded(terms: Terms) -> tuple[Terms, str, Terms]:
    """Left side, sign and right side of `terms >= 0`, for integers.

    Positions stand to the left and numbers to the right: `q - k < 256`, `q >= k`, `k < lengths_b`.
    """
    moving, fixed = terms.split()
    up = Terms(tuple(part for part in moving.parts if part[0] > 0))
    down = Terms(tuple((-factor, part) for factor, part in moving.parts if factor < 0))
    if not moving.parts:
        return fixed, r"\ge", Terms(adjusted=-terms.number)
    if up.parts and down.parts and not fixed.parts and terms.number == 0:
        return up, r"\ge", down
    # A strict comparison was stored with a constant of -1.
    strict = terms.adjusted == -1
    rest = Terms(fixed.parts, terms.bound, 0 if strict else terms.adjusted)
    if strict and up.parts and not rest.parts and rest.number == 0:
        return up, r"\gt", down
    if up.parts and (not down.parts or (not fixed.parts and terms.number < 0)):
        return up.minus(down), r"\gt" if strict else r"\ge", rest.times(-1)
    return down.minus(up), r"\lt" if strict else r"\le", rest


def opposite(difference: str) -> str:
    """`b - a` for the text `a - b`; an empty text for longer sums."""
    left, minus, right = difference.partition(" - ")
    return f"{right} - {left}" if minus and " - " not in right and " + " not in difference else ""


_LOOSE, _OR, _AND, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)

_WIDE: Final = 90


def expression_latex(expression: Expression) -> str:
    """The condition of an expression, and its score as a function of `s`, at `q` and `k`."""
    mask, bias = expression.mask_node, expression.bias_node
    if bias is SCORE:
        return latex(mask)
    term = r"s \mapsto " + latex(bias)
    if mask is TRUE:
        return term
    return rf"{term} \quad\text{{where}}\quad {latex(mask)}"


def latex(node: Node) -> str:
    """The formula as LaTeX, without dollar signs around it.

    The parts of a long conjunction or disjunction stand below each other.
    """
    text = _latex(node, _LOOSE)
    if len(text) <= _WIDE or node.op not in ("and", "or"):
        return text
    sign = r"\land" if node.op == "and" else r"\lor"
    lines = rf" \\ {sign}\; ".join(f"& {part}" for part in _parts(node))
    return rf"\begin{{aligned}} {lines} \end{{aligned}}"


def _latex(node: Node, around: int) -> str:
    rule = _RULES.get(node.op)
    if rule is None:
        raise NotImplementedError(f"no LaTeX for {node.op!r}: add it to maskalg/formula/latex.py")
    return rule(node, around)


def _wrap(text: str, level: int, around: int) -> str:
    return rf"\left({text}\right)" if level < around else text


def _listed(args: tuple[Node, ...]) -> str:
    return ", ".join(_latex(arg, _LOOSE) for arg in args)


# --- leaves ---------------------------------------------------------------------------------------


def _const(node: Node, around: int) -> str:
    if isinstance(node.data, bool):
        return rf"\text{{{str(node.data).lower()}}}"
    return _terms(terms_of(node), around)


def _scalar(node: Node, around: int) -> str:
    if isinstance(node.own[0], Scalar):
        return _terms(terms_of(node), around)
    return name_latex(node.own[0].name)


def _read(node: Node, around: int) -> str:
    name = name_latex(node.own[0].name)
    return f"{name}_{{{_listed(node.args)}}}" if node.args else name


def _extent(node: Node, around: int) -> str:
    return rf"\operatorname{{size}}_{{{node.data}}}({name_latex(node.own[0].name)})"


def _step(node: Node, around: int) -> str:
    table = name_latex(node.own[0].name)
    return rf"{name_latex(str(node.data))}_{{{table}}}({_latex(node.args[-1], _LOOSE)})"


def _member(node: Node, around: int) -> str:
    return rf"{name_latex(str(node.data))}({_latex(node.args[-1], _LOOSE)})"


def _opaque(node: Node, around: int) -> str:
    return f"{name_latex(str(node.data))}({_listed(node.args)})"


# --- numbers --------------------------------------------------------------------------------------


def _sum(node: Node, around: int) -> str:
    return _terms(terms_of(node), around)


def _terms(terms: Terms, around: int) -> str:
    """A sum, its positive terms first and its number last."""
    number = terms.number
    if len(terms.parts) == 1 and terms.parts[0][0] == 1 and not number:
        return _latex(terms.parts[0][1], around)
    if not terms.parts:
        return _wrap(number_text(number), _SUM if number < 0 else _ATOM, around)
    signed = [_term(factor, part) for factor, part in terms.parts]
    if number:
        signed.append(("-" if number < 0 else "+", number_text(abs(number))))
    signed.sort(key=lambda pair: pair[0] == "-")
    first_sign, first = signed[0]
    text = ("-" if first_sign == "-" else "") + first
    text += "".join(f" {sign} {part}" for sign, part in signed[1:])
    level = _SUM if len(signed) > 1 or first_sign == "-" else _PRODUCT
    return _wrap(text, level, around)


def _term(factor: Number, part: Node) -> tuple[str, str]:
    """The sign and the rest of `factor * part`."""
    sign, size = ("-" if factor < 0 else "+"), abs(factor)
    if size == 1:
        return sign, _latex(part, _PRODUCT)
    return sign, rf"{number_text(size)} \cdot {_latex(part, _PRODUCT)}"


def _product(node: Node, around: int) -> str:
    terms = terms_of(node)
    if len(terms.parts) != 1 or terms.parts[0][0] != 1 or terms.number:
        return _terms(terms, around)
    factors = terms.parts[0][1].args
    return _wrap(r" \cdot ".join(_latex(arg, _PRODUCT) for arg in factors), _PRODUCT, around)


def _floordiv(node: Node, around: int) -> str:
    terms = terms_of(node)
    if terms.parts != ((1, node),):
        return _terms(terms, around)
    above, below = _latex(node.args[0], _PRODUCT), _latex(node.args[1], _ATOM)
    return rf"\left\lfloor {above} / {below} \right\rfloor"


def _mod(node: Node, around: int) -> str:
    left, right = (_latex(arg, _ATOM) for arg in node.args)
    return _wrap(rf"{left} \bmod {right}", _PRODUCT, around + (around == _PRODUCT))


def _div(node: Node, around: int) -> str:
    above, below = (_latex(arg, _LOOSE) for arg in node.args)
    return rf"\frac{{{above}}}{{{below}}}"


def _pow(node: Node, around: int) -> str:
    # A base with a subscript or a power of its own is set apart by braces.
    base, exponent = _latex(node.args[0], _ATOM), _latex(node.args[1], _LOOSE)
    return f"{{{base}}}^{{{exponent}}}"


def _extreme(name: str) -> Rule:
    def rule(node: Node, around: int) -> str:
        reads = [arg for arg in node.args if arg.op == "read"]
        floors = [arg.data for arg in node.args if arg.op == "const"]
        if len(reads) == 1 and len(node.args) == 2 and floors == [reads[0].own[0].low]:
            # The declared lower bound of a table is not shown.
            return _read(reads[0], around)
        sides = [terms_of(arg) for arg in node.args]
        if name == "max" and len(sides) == 2 and sides[0].plus(sides[1]) == Terms():
            size = max(sides, key=lambda side: -side.parts[-1][0])
            return rf"\left\lvert {_terms(size, _LOOSE)} \right\rvert"
        return rf"\{name}\left({_listed(node.args)}\right)"

    return rule


def _trunc(node: Node, around: int) -> str:
    return rf"\operatorname{{trunc}}\left({_latex(node.args[0], _LOOSE)}\right)"


def _bitwise(sign: str) -> Rule:
    def rule(node: Node, around: int) -> str:
        text = rf" \mathbin{{{sign}}} ".join(_latex(arg, _ATOM) for arg in node.args)
        return _wrap(text, _SUM, around)

    return rule


def _where(node: Node, around: int) -> str:
    condition, then, otherwise = (_latex(arg, _LOOSE) for arg in node.args)
    return (
        rf"\begin{{cases}} {then} & \text{{if }} {condition} \\ "
        rf"{otherwise} & \text{{otherwise}} \end{{cases}}"
    )


def _call(node: Node, around: int) -> str:
    if node.data == "float":
        return _latex(node.args[0], around)
    return function_of(node).latex.format(_latex(node.args[0], _LOOSE))


# --- conditions -----------------------------------------------------------------------------------


def _lattice(sign: str, level: int) -> Rule:
    def rule(node: Node, around: int) -> str:
        return _wrap(f" {sign} ".join(_parts(node)), level, around)

    return rule


def _parts(node: Node) -> list[str]:
    """The parts of a conjunction or disjunction; `a - b < n` with `b - a < n` is `|a - b| < n`."""
    level = _AND if node.op == "and" else _OR
    if node.op == "or":
        return [_latex(arg, level) for arg in node.args]
    found: list[tuple[str, str, str]] = []
    for arg in node.args:
        left, sign, right = _compared(arg, holds=True) if arg.op == "ge" else ("", "", "")
        twin = (opposite(left), sign, right)
        if sign in (r"\le", r"\lt") and twin in found:
            # Of the two differences, the one that ends with the key.
            size = left if left.rfind("k") > left.rfind("q") else twin[0]
            found[found.index(twin)] = (rf"\lvert {size} \rvert", sign, right)
        else:
            found.append((left, sign, right) if sign else (_latex(arg, level), "", ""))
    return [" ".join(part for part in parts if part) for parts in found]


def _comparison(node: Node, around: int) -> str:
    return _wrap(" ".join(_compared(node, holds=True)), _COMPARE, around)


def _compared(node: Node, holds: bool) -> tuple[str, str, str]:
    """Left side, sign and right side of `left >= right` or `left > right`, or of its negation."""
    left, right = node.args
    if "real" in (left.kind, right.kind) or "bool" in (left.kind, right.kind):
        signs = {"ge": (r"\ge", r"\lt"), "gt": (r"\gt", r"\le")}[node.op]
        return _latex(left, _SUM), signs[not holds], _latex(right, _SUM)
    terms = terms_of(left).minus(terms_of(right))
    low, sign, high = bounded(terms if holds else terms.negated_condition())
    return _terms(low, _SUM), sign, _terms(high, _SUM)


def _equality(sign: str) -> Rule:
    def rule(node: Node, around: int) -> str:
        left, right = sorted((_latex(arg, _SUM) for arg in node.args), key=str.isdigit)
        return _wrap(f"{left} {sign} {right}", _COMPARE, around)

    return rule


def _not(node: Node, around: int) -> str:
    (inner,) = node.args
    if inner.op == "eq":
        return _equality(r"\ne")(inner, around)
    if inner.op in ("ge", "gt"):
        return _wrap(" ".join(_compared(inner, holds=False)), _COMPARE, around)
    return rf"\lnot {_latex(inner, _ATOM)}"


Rule = Callable[[Node, int], str]

_RULES: Final[dict[str, Rule]] = {
    "index": lambda node, around: index_latex(cast(str, node.data)),
    "const": _const,
    "scalar": _scalar,
    "read": _read,
    "extent": _extent,
    "step": _step,
    "member": _member,
    "score": lambda node, around: "s",
    "opaque": _opaque,
    "add": _sum,
    "mul": _product,
    "floordiv": _floordiv,
    "mod": _mod,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "where": _where,
    "div": _div,
    "pow": _pow,
    "call": _call,
    "trunc": _trunc,
    **{name: _bitwise(row.latex) for name, row in BITWISE.items() if row.latex},
    "ge": _comparison,
    "gt": _comparison,
    "eq": _equality("="),
    "and": _lattice(r"\land", _AND),
    "or": _lattice(r"\lor", _OR),
    "not": _not,
}
