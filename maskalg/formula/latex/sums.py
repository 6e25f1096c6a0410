"""Sums as terms and a number, for typesetting: numbers that are bound are put in and added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, cast

from .. import nodes
from ..nodes import Node
from ..parameters import Scalar

Number = int | float


@dataclass(frozen=True)
class Terms:
    """factor * part + ... + bound + adjusted.

    `bound` is what bound scalars add up to, and `adjusted` what constants do: a window of 256 is
    stored as `256 - 1 >= q - k`, and reads best as `q - k < 256`.
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
