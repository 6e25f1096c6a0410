"""The derivative of a bias with respect to the score, as a formula: one rule for each operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from ..formula import nodes
from ..formula.node import Node
from . import messages

_ZERO = nodes.const(0.0)
_ONE = nodes.const(1.0)


def derivative(bias: Node) -> Node:
    """f'(s) of a bias f(s); the constant 1 where the bias is additive.

    Raises:
        NotImplementedError: an operation without a rule; the message names this file.
    """
    if bias.op == "score":
        return _ONE
    if not any(node.op == "score" for node in bias.walk()):
        return _ZERO
    rule = _RULES.get(bias.op)
    if rule is None:
        raise NotImplementedError(f"no derivative of {bias.op!r}: add it to codegen/derivative.py")
    return rule(bias)


def _sum(node: Node) -> Node:
    parts = [derivative(arg) for arg in node.args]
    return nodes.add(*[part for part in parts if part != _ZERO] or [_ZERO])


def _product(node: Node) -> Node:
    terms = []
    for place, factor in enumerate(node.args):
        slope = derivative(factor)
        if slope != _ZERO:
            others = node.args[:place] + node.args[place + 1 :]
            terms.append(nodes.mul(*others, slope) if slope != _ONE else nodes.mul(*others))
    return nodes.add(*terms)


def _quotient(node: Node) -> Node:
    top, bottom = node.args
    slope = nodes.divide(derivative(top), bottom)
    change = derivative(bottom)
    if change == _ZERO:
        return slope
    lost = nodes.divide(nodes.mul(top, change), nodes.mul(bottom, bottom))
    return nodes.subtract(slope, lost)


def _where(node: Node) -> Node:
    condition, then, otherwise = node.args
    return nodes.where(condition, derivative(then), derivative(otherwise))


def _extremum(node: Node) -> Node:
    """Of the argument that is attained; of the first one at a tie."""
    result, chosen = derivative(node.args[0]), node.args[0]
    for arg in node.args[1:]:
        greater = nodes.gt(arg, chosen) if node.op == "max" else nodes.gt(chosen, arg)
        result = nodes.where(greater, derivative(arg), result)
        chosen = nodes.maximum(chosen, arg) if node.op == "max" else nodes.minimum(chosen, arg)
    return result


def _call(node: Node) -> Node:
    x = node.args[0]
    outer = _FUNCTIONS[cast(str, node.data)](node, x)
    inner = derivative(x)
    if _ZERO in (outer, inner):
        return _ZERO
    return outer if inner == _ONE else nodes.mul(outer, inner)


def _power(node: Node) -> Node:
    """b c**(b - 1) c' + c**b log(c) b'; the second part for positive bases alone."""
    base, exponent = node.args
    terms = []
    of_base, of_exponent = derivative(base), derivative(exponent)
    if of_base != _ZERO:
        lower = nodes.power(base, nodes.subtract(exponent, _ONE))
        terms.append(nodes.mul(exponent, lower, of_base))
    if of_exponent != _ZERO:
        terms.append(nodes.mul(node, nodes.call("log", base), of_exponent))
    return nodes.add(*terms)


def _flat(node: Node) -> Node:
    return _ZERO


def _opaque(node: Node) -> Node:
    raise messages.opaque_on_gpu(str(node.data), node.kind == "bool")


def _of_reciprocal(factor: float) -> Callable[[Node, Node], Node]:
    return lambda y, x: nodes.divide(nodes.const(factor), x)


_FUNCTIONS: dict[str, Callable[[Node, Node], Node]] = {
    "tanh": lambda y, x: nodes.subtract(_ONE, nodes.mul(y, y)),
    "sigmoid": lambda y, x: nodes.mul(y, nodes.subtract(_ONE, y)),
    "exp": lambda y, x: y,
    "exp2": lambda y, x: nodes.mul(nodes.const(math.log(2.0)), y),
    "expm1": lambda y, x: nodes.call("exp", x),
    "log": _of_reciprocal(1.0),
    "log2": _of_reciprocal(1.0 / math.log(2.0)),
    "log1p": lambda y, x: nodes.divide(_ONE, nodes.add(_ONE, x)),
    "sqrt": lambda y, x: nodes.divide(nodes.const(0.5), y),
    "sin": lambda y, x: nodes.call("cos", x),
    "cos": lambda y, x: nodes.negate(nodes.call("sin", x)),
    "tan": lambda y, x: nodes.add(_ONE, nodes.mul(y, y)),
    "erf": lambda y, x: nodes.mul(
        nodes.const(2.0 / math.sqrt(math.pi)), nodes.call("exp", nodes.negate(nodes.mul(x, x)))
    ),
    "float": lambda y, x: _ONE,
    "floor": lambda y, x: _ZERO,
    "ceil": lambda y, x: _ZERO,
    "abs": lambda y, x: nodes.where(nodes.gt(_ZERO, x), nodes.const(-1.0), _ONE),
}

_RULES: dict[str, Callable[[Node], Node]] = {
    "add": _sum,
    "mul": _product,
    "div": _quotient,
    "where": _where,
    "min": _extremum,
    "max": _extremum,
    "call": _call,
    "pow": _power,
    "trunc": _flat,
    "opaque": _opaque,
}
