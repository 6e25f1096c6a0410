"""Operations on single formulas, as Python and torch mean them: numbers, comparisons, logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from .. import errors, nodes
from ..nodes import Node
from .bounds import Bounds

ONE, ZERO = nodes.const(1), nodes.const(0)


def number(node: Node) -> Node:
    """A truth value as 0 or 1; a number as it is."""
    return nodes.where(node, ONE, ZERO) if node.kind == "bool" else node


def truth(node: Node) -> Node:
    """Whether a number is not 0; a truth value as it is."""
    if node.op == "const":
        return nodes.const(bool(node.data))
    return node if node.kind == "bool" else nodes.negation(equal(node, ZERO))


def real(node: Node) -> Node:
    node = number(node)
    if node.op == "const":
        return nodes.const(float(cast(float, node.data)))
    return nodes.call("float", node)


def add(x: Node, y: Node) -> Node:
    return nodes.add(number(x), number(y))


def subtract(x: Node, y: Node) -> Node:
    return nodes.subtract(number(x), number(y))


def multiply(x: Node, y: Node) -> Node:
    return nodes.mul(number(x), number(y))


def divide(x: Node, y: Node) -> Node:
    return nodes.divide(number(x), number(y))


def floor_divide(bounds: Bounds, x: Node, y: Node) -> Node:
    x, y = number(x), number(y)
    if "real" in (x.kind, y.kind):
        return nodes.call("floor", nodes.divide(x, y))
    if y.op == "const" and cast(int, y.data) < 0:
        x, y = nodes.negate(x), nodes.negate(y)
    return nodes.floordiv(x, bounds.divisor(y))


def remainder(bounds: Bounds, x: Node, y: Node) -> Node:
    """With the sign of the divisor."""
    x, y = number(x), number(y)
    if "real" in (x.kind, y.kind):
        whole = nodes.call("floor", nodes.divide(x, y))
        return nodes.subtract(x, nodes.mul(y, whole))
    if y.op == "const" and cast(int, y.data) < 0:
        return nodes.negate(remainder(bounds, nodes.negate(x), nodes.negate(y)))
    return nodes.mod(x, bounds.divisor(y))


def truncating_divide(bounds: Bounds, x: Node, y: Node) -> Node:
    """Rounded towards zero, as C divides."""
    x, y = number(x), number(y)
    if "real" in (x.kind, y.kind):
        return nodes.call("float", nodes.truncated(nodes.divide(x, y)))
    if bounds.never_negative(x):
        return floor_divide(bounds, x, y)
    below = nodes.negate(floor_divide(bounds, nodes.negate(x), y))
    return nodes.where(nodes.ge(x, ZERO), floor_divide(bounds, x, y), below)


def truncating_remainder(bounds: Bounds, x: Node, y: Node) -> Node:
    """With the sign of the dividend, as C's and `torch.fmod`'s."""
    return nodes.subtract(number(x), nodes.mul(number(y), truncating_divide(bounds, x, y)))


def power(x: Node, y: Node) -> Node:
    x, y = number(x), number(y)
    if x.kind == y.kind == "int" and not (y.op == "const" and cast(int, y.data) in (1, 2, 3, 4)):
        if y.op == "const" and y.data == 0:
            return ONE
        # Whole powers of whole numbers are whole: 2.0**3 is rounded to the nearest.
        exact = nodes.power(real(x), real(y))
        return nodes.truncated(nodes.call("floor", nodes.add(exact, nodes.const(0.5))))
    return nodes.power(x, y)


def absolute(x: Node) -> Node:
    x = number(x)
    return nodes.call("abs", x) if x.kind == "real" else nodes.maximum(x, nodes.negate(x))


def minimum(x: Node, y: Node) -> Node:
    return nodes.minimum(number(x), number(y))


def maximum(x: Node, y: Node) -> Node:
    return nodes.maximum(number(x), number(y))


def greater_equal(x: Node, y: Node) -> Node:
    return nodes.ge(number(x), number(y))


def greater(x: Node, y: Node) -> Node:
    return nodes.gt(number(x), number(y))


def equal(x: Node, y: Node) -> Node:
    if x.kind == y.kind == "bool":
        return nodes.disjunction(
            nodes.conjunction(x, y), nodes.conjunction(nodes.negation(x), nodes.negation(y))
        )
    return nodes.eq(_unsigned(number(x), y), _unsigned(number(y), x))


def _unsigned(side: Node, other: Node) -> Node:
    """`abs(x) % m == 0` holds where `x % m == 0` does, which the proof knows more about."""
    if side.op == "mod" and other.op == "const" and other.data == 0:
        inner = side.args[0]
        if inner.op == "max" and len(inner.args) == 2:
            first, second = inner.args
            if first == nodes.negate(second):
                return nodes.mod(first, side.args[1])
    return side


def where(condition: Node, then: Node, otherwise: Node) -> Node:
    condition = truth(condition)
    if condition.op == "const":
        return then if condition.data else otherwise
    if then.kind == otherwise.kind == "bool":
        return nodes.disjunction(
            nodes.conjunction(condition, then),
            nodes.conjunction(nodes.negation(condition), otherwise),
        )
    return nodes.where(condition, number(then), number(otherwise))


def both(x: Node, y: Node) -> Node:
    return nodes.conjunction(truth(x), truth(y))


def either(x: Node, y: Node) -> Node:
    return nodes.disjunction(truth(x), truth(y))


def exactly_one(x: Node, y: Node) -> Node:
    return nodes.negation(equal(truth(x), truth(y)))


def bitwise(
    op: Literal["bitand", "bitor", "bitxor"], logical: Callable[[Node, Node], Node]
) -> Callable[[Node, Node], Node]:
    """`&`, `|` or `^`: logic on truth values, bits on integers."""

    def rule(x: Node, y: Node) -> Node:
        if x.kind == y.kind == "bool":
            return logical(x, y)
        x, y = number(x), number(y)
        if "real" in (x.kind, y.kind):
            raise errors.untraceable("a bitwise operation on real numbers")
        return nodes.bitwise(op, x, y)

    return rule


def invert(x: Node) -> Node:
    return nodes.negation(x) if x.kind == "bool" else nodes.subtract(nodes.const(-1), x)


def shift_left(x: Node, y: Node) -> Node:
    return nodes.mul(number(x), nodes.const(2 ** _shift(y)))


def shift_right(x: Node, y: Node) -> Node:
    return nodes.floordiv(number(x), nodes.const(2 ** _shift(y)))


def _shift(y: Node) -> int:
    if y.op != "const" or y.kind != "int" or not 0 <= cast(int, y.data) < 31:
        raise errors.untraceable("a shift by anything but a number from 0 to 30")
    return cast(int, y.data)


def sign(x: Node) -> Node:
    x = number(x)
    one, zero = (nodes.const(1.0), nodes.const(0.0)) if x.kind == "real" else (ONE, ZERO)
    return nodes.where(
        nodes.gt(x, ZERO), one, nodes.where(nodes.gt(ZERO, x), nodes.negate(one), zero)
    )


def whole(x: Node) -> Node:
    """As an integer, rounded towards zero."""
    return nodes.truncated(number(x))


def floored(bounds: Bounds, x: Node) -> Node:
    """`math.floor`, an integer; of a quotient of integers it is their floor division."""
    if x.op == "div" and x.args[0].kind == x.args[1].kind == "int":
        return floor_divide(bounds, *x.args)
    return x if x.kind == "int" else nodes.truncated(nodes.call("floor", x))
