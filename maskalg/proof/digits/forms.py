"""The closed forms of a mask by digits: for each digit of a position, intervals of key digits.

No SymPy here. A position is written in mixed radix: `x` splits by a radix `c` into `x // c` and
`x % c`, and each part may split further. The *leaves* of that tree are the digits; they are
numbered from the most to the least significant. An *axis* is a coordinate made of one digit or
of several (in tiled order: tile number and place in the tile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ...formula.nodes import Node
from ...formula.printing import formula_text
from ..closed_forms import keys_text


@dataclass(frozen=True)
class Leaf:
    """One digit, by its number."""

    index: int


Radix = TypeVar("Radix", Node, int)


@dataclass(frozen=True)
class Split(Generic[Radix]):
    """A number as `major * radix + minor`, with minor below the radix: a formula, or its value."""

    radix: Radix
    major: Leaf | Split[Radix]
    minor: Leaf | Split[Radix]


Tree = Leaf | Split[Node]
Numeral = Leaf | Split[int]


@dataclass(frozen=True)
class Axis:
    """A coordinate of one or more digits, most significant first.

    `radices[i]` tells digit i + 1 apart from those before it: with digits a and b, the coordinate
    is `a * radices[0] + b`.
    """

    digits: tuple[int, ...]
    radices: tuple[Node, ...]


@dataclass(frozen=True)
class AxisSpan:
    """Key coordinates `max(lows) <= k <= min(highs)` of one axis, when every guard is >= 0.

    The formulas range over `q0, q1`, the first and last query coordinate on the axis.
    """

    lows: tuple[Node, ...]
    highs: tuple[Node, ...]
    guards: tuple[Node, ...]


@dataclass(frozen=True)
class BoxClause:
    """The keys of a box of queries: on every axis in `axes`, the key lies in one of the spans.

    `conditions` are masks of batch and head. The other bounds are on the query and the key index
    themselves.
    """

    conditions: tuple[Node, ...]
    q_lows: tuple[Node, ...]
    q_highs: tuple[Node, ...]
    k_lows: tuple[Node, ...]
    k_highs: tuple[Node, ...]
    axes: tuple[tuple[Axis, tuple[AxisSpan, ...]], ...]


@dataclass(frozen=True)
class DigitPart:
    """Clauses over one tree of digits.

    Attributes:
        q_offset, k_offset: added to the indices before they are written in digits.
        tree: the digits of queries and keys.
        touched, unfull: clauses of the mask and of its negation.
    """

    q_offset: Node
    k_offset: Node
    tree: Tree
    touched: tuple[BoxClause, ...]
    unfull: tuple[BoxClause, ...]


@dataclass(frozen=True)
class DigitForms:
    """Exact forms of a mask in which queries and keys meet digit by digit.

    A key is touched when a clause of some part touches it, and likewise not full.
    """

    parts: tuple[DigitPart, ...]


def digit_texts(tree: Tree, text: str = "x") -> list[str]:
    """The expression of each digit in a position x, as text."""
    if isinstance(tree, Leaf):
        return [text]
    radix = formula_text(tree.radix)
    radix = f"({radix})" if tree.radix.args else radix
    inner = text if text == "x" else f"({text})"
    return digit_texts(tree.major, f"{inner} // {radix}") + digit_texts(
        tree.minor, f"{inner} % {radix}"
    )


def span_text(span: AxisSpan) -> str:
    """The key coordinates of a span, as text."""
    text = keys_text(*[[formula_text(bound) for bound in side] for side in (span.lows, span.highs)])
    return text + "".join([f" if {formula_text(guard)} >= 0" for guard in span.guards])
