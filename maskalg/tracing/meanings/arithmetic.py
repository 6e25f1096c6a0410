"""Operations on single formulas, as Python and torch mean them: numbers, comparisons, logic.

torch rounds a real number at each operation, in the order written. A formula folds its constants
together, which rounds differently; `rounded` keeps them apart where this matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Final, Literal, cast

from ...formula import nodes
from ...formula.nodes import SCORE, Node
from ...formula.parameters import Table
from .. import messages
from ..bounds import Bounds
from .wrapping import converted, of_32_bits, refuse_numbers, refuse_wrapping


def unfolded(bounds: Bounds, factor: Node, other: Node) -> Node:
    """`factor`, wrapped where its product with `other` would fold constants, as in `2 * (x + 3)`.

    Where real numbers are compared, a factor that is a product is wrapped for any `other` but -1.
    """
    if other.op == "const" and other.data == -1:
        return factor
    if other.op == "const" and factor.op == "add":
        return rounded("add", factor)
    if bounds.exact:
        return rounded("mul", factor)
    if constant_of("mul", other) and constant_of("mul", factor):
        return rounded("mul", factor)
    return factor


def constant_of(op: str, node: Node) -> bool:
    """Whether a sum or a product has a constant that folds with other constants."""
    if node.op == "const":
        return op == "add" or node.data != -1  # a sign does not round
    return node.op == op and any(constant_of(op, arg) for arg in node.args)


def rounded(op: str, node: Node) -> Node:
    """A sum or a product wrapped in `float`, so that it is rounded before further operations.

    One that contains the score is returned as it is: backends look for the score in one sum.
    """
    if node.op != op or any(part == SCORE for part in node.walk()):
        return node
    return Node("call", "real", (node,), data="float")


ONE, ZERO, MINUS_ONE = nodes.const(1), nodes.const(0), nodes.const(-1)

# Whole powers are written out as products; higher ones leave 64 bits in any case.
_MOST_FACTORS: Final = 16


def number(node: Node) -> Node:
    """A truth value as 0 or 1; a number as it is."""
    return nodes.where(node, ONE, ZERO) if node.kind == "bool" else node


def operands(x: Node, y: Node) -> tuple[Node, Node]:
    """Both as numbers, checked to fit the dtype of their operation."""
    refuse_numbers(x, y)
    return number(x), number(y)


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


def add(bounds: Bounds, x: Node, y: Node) -> Node:
    """The sum; of two truth values it is `or`, as in torch."""
    if x.kind == y.kind == "bool":
        return either(x, y)
    refuse_wrapping("+", x, y)
    x, y = operands(x, y)
    folded = constant_of("add", x) and constant_of("add", y)
    if "real" in (x.kind, y.kind) and (bounds.exact or folded):
        x, y = rounded("add", x), rounded("add", y)
    return nodes.add(x, y)


def subtract(bounds: Bounds, x: Node, y: Node) -> Node:
    refuse_wrapping("-", x, y)
    x, y = operands(x, y)
    if x.kind == y.kind == "int":
        return nodes.subtract(x, y)
    return add(bounds, x, nodes.negate(y))


def multiply(bounds: Bounds, x: Node, y: Node) -> Node:
    """The product; of two truth values it is `and`, as in torch."""
    if x.kind == y.kind == "bool":
        return both(x, y)
    refuse_wrapping("*", x, y)
    x, y = operands(x, y)
    if "real" in (x.kind, y.kind):
        x, y = unfolded(bounds, x, y), unfolded(bounds, y, x)
    return nodes.mul(x, y)


def divide(x: Node, y: Node) -> Node:
    return nodes.divide(number(x), number(y))


def floor_divide(bounds: Bounds, x: Node, y: Node) -> Node:
    x, y = operands(x, y)
    if y == MINUS_ONE:
        refuse_wrapping("// -1", x)
    if "real" in (x.kind, y.kind):
        _check_quotient("//", bounds, y)
        return nodes.call("floor", nodes.divide(x, y))
    if y.op == "const" and cast(int, y.data) < 0:
        x, y = nodes.negate(x), nodes.negate(y)
    return nodes.floordiv(x, bounds.divisor(y))


def remainder(bounds: Bounds, x: Node, y: Node) -> Node:
    """`x % y`, with the sign of the divisor."""
    x, y = operands(x, y)
    if "real" in (x.kind, y.kind):
        _check_quotient("%", bounds, y)
        whole = nodes.call("floor", nodes.divide(x, y))
        return nodes.subtract(x, nodes.mul(y, whole))
    if y.op == "const" and cast(int, y.data) < 0:
        return nodes.negate(nodes.mod(nodes.negate(x), bounds.divisor(nodes.negate(y))))
    return nodes.mod(x, bounds.divisor(y))


def _check_quotient(sign: str, bounds: Bounds, divisor: Node) -> None:
    """Refuse real `//` and `%` in masks: our quotient rounds, torch's remainder is exact."""
    of_two = divisor.op == "const" and math.frexp(cast(float, divisor.data))[0] in (0.5, -0.5)
    if bounds.exact and not of_two:
        raise messages.untraceable(f"`{sign}` of real numbers, except by a power of two,")


def truncating_divide(bounds: Bounds, x: Node, y: Node) -> Node:
    """The quotient rounded towards zero, as in C."""
    x, y = operands(x, y)
    if "real" in (x.kind, y.kind):
        return nodes.call("float", nodes.truncated(nodes.divide(x, y)))
    if y == MINUS_ONE:
        return floor_divide(bounds, x, y)
    if y.op == "const" and cast(int, y.data) < 0:
        return nodes.negate(truncating_divide(bounds, x, nodes.negate(y)))
    if bounds.never_negative(x):
        return floor_divide(bounds, x, y)
    below = nodes.negate(floor_divide(bounds, nodes.negate(x), y))
    return nodes.where(nodes.ge(x, ZERO), floor_divide(bounds, x, y), below)


def truncating_remainder(bounds: Bounds, x: Node, y: Node) -> Node:
    """The remainder with the sign of the dividend, as in C and `torch.fmod`."""
    if "real" in (x.kind, y.kind):
        _check_quotient("fmod", bounds, y)
    return nodes.subtract(number(x), nodes.mul(number(y), truncating_divide(bounds, x, y)))


def power(bounds: Bounds, x: Node, y: Node) -> Node:
    x, y = number(x), number(y)
    return _whole_power(bounds, x, y) if x.kind == y.kind == "int" else nodes.power(x, y)


def _whole_power(bounds: Bounds, x: Node, y: Node) -> Node:
    """The exact power of integers: a product, or a power of 1, 2, 4, 8 and so on."""
    if y.op == "const":
        count = cast(int, y.data)
        if not 0 <= count <= _MOST_FACTORS:
            raise messages.traced_power(f"the power {count}")
        return ONE if count == 0 else reduce(partial(multiply, bounds), [x] * count)
    if x.op != "const" or cast(int, x.data).bit_count() != 1 or cast(int, x.data) < 1:
        raise messages.traced_power("a power with an exponent that varies")
    refuse_wrapping("**", y)
    exact = nodes.power(real(x), real(y))
    raised = nodes.truncated(nodes.call("floor", nodes.add(exact, nodes.const(0.5))))
    if x.data == 1 or bounds.never_negative(y):
        return raised
    return nodes.where(nodes.ge(y, ZERO), raised, ZERO)


def absolute(x: Node) -> Node:
    x = number(x)
    if x.kind == "real":
        return nodes.call("abs", x)
    return nodes.maximum(x, negate(x))


def negate(x: Node) -> Node:
    refuse_wrapping("-", x)
    return nodes.negate(number(x))


def minimum(x: Node, y: Node) -> Node:
    if x.kind == y.kind == "bool":
        return both(x, y)
    return nodes.minimum(*operands(x, y))


def maximum(x: Node, y: Node) -> Node:
    if x.kind == y.kind == "bool":
        return either(x, y)
    return nodes.maximum(*operands(x, y))


def at_least(x: Node, low: Node) -> Node:
    """`torch.clamp(x, min=low)`. Where both are equal, x has the whole gradient: the gradient of a
    maximum is divided between equal numbers."""
    x, low = operands(x, low)
    if not differentiable(x) and not differentiable(low):
        return nodes.maximum(x, low)
    return nodes.where(nodes.gt(low, x), low, x)


def at_most(x: Node, high: Node) -> Node:
    """`torch.clamp(x, max=high)`, with gradients as `at_least` has them."""
    x, high = operands(x, high)
    if not differentiable(x) and not differentiable(high):
        return nodes.minimum(x, high)
    return nodes.where(nodes.gt(x, high), high, x)


def differentiable(x: Node) -> bool:
    """Whether gradients may pass a formula: to the score, or to a tensor that requires one.

    Not to one that masks: -inf is followed through minima, not through choices that read the score.
    """
    parts = list(x.walk())
    if any(part.op == "const" and part.data == -math.inf for part in parts):
        return False
    tables = [parameter for parameter in x.params if isinstance(parameter, Table)]
    return any(t.tensor.requires_grad for t in tables) or SCORE in parts


def greater_equal(x: Node, y: Node) -> Node:
    return nodes.ge(*operands(x, y))


def greater(x: Node, y: Node) -> Node:
    return nodes.gt(*operands(x, y))


def equal(x: Node, y: Node) -> Node:
    if x.kind == y.kind == "bool":
        return nodes.disjunction(
            nodes.conjunction(x, y), nodes.conjunction(nodes.negation(x), nodes.negation(y))
        )
    x, y = operands(x, y)
    return nodes.eq(_unsigned(x, y), _unsigned(y, x))


def _unsigned(side: Node, other: Node) -> Node:
    """`x % m` for `abs(x) % m == 0`: the two are equivalent, and proofs know more about it."""
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
    return nodes.where(condition, *operands(then, otherwise))


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
        x, y = operands(x, y)
        if "real" in (x.kind, y.kind):
            raise messages.untraceable("a bitwise operation on real numbers")
        return nodes.bitwise(op, x, y)

    return rule


def invert(x: Node) -> Node:
    if x.kind == "bool":
        return nodes.negation(x)
    refuse_wrapping("~", x)
    return nodes.subtract(nodes.const(-1), x)


def shift_left(x: Node, y: Node) -> Node:
    refuse_wrapping("<<", x)
    return nodes.mul(number(x), nodes.const(2 ** _shift(y)))


def shift_right(x: Node, y: Node) -> Node:
    return nodes.floordiv(number(x), nodes.const(2 ** _shift(y)))


def _shift(y: Node) -> int:
    if y.op != "const" or y.kind != "int" or not 0 <= cast(int, y.data) < 31:
        raise messages.untraceable("a shift by anything but a number from 0 to 30")
    return cast(int, y.data)


def sign(x: Node) -> Node:
    x = number(x)
    one, zero = (nodes.const(1.0), nodes.const(0.0)) if x.kind == "real" else (ONE, ZERO)
    return nodes.where(
        nodes.gt(x, ZERO), one, nodes.where(nodes.gt(ZERO, x), nodes.negate(one), zero)
    )


def whole(x: Node) -> Node:
    """As an integer, rounded towards zero."""
    return nodes.truncated(converted(number(x)))


def short(x: Node) -> Node:
    """As an integer of 32 bits: torch computes with it in 32 bits."""
    return of_32_bits(whole(x))


def floored(bounds: Bounds, x: Node) -> Node:
    """`math.floor(x)`, an integer; for a quotient of integers, their floor division."""
    if x.op == "div" and x.args[0].kind == x.args[1].kind == "int":
        return floor_divide(bounds, *x.args)
    return x if x.kind == "int" else nodes.truncated(nodes.call("floor", x))
