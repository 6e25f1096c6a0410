"""The derivative of a bias by the score or by an entry, as a formula: a rule for each operation."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BackendError
from ..formula import nodes
from ..formula.functions import function_of
from ..formula.nodes import Node

_ZERO = nodes.const(0.0)
_ONE = nodes.const(1.0)


def derivative(bias: Node, by: Node = nodes.SCORE) -> Node:
    """f'(s) of a bias f(s); the constant 1 if the bias is additive.

    Args:
        by: s: the score, or a read of a table.

    Raises:
        NotImplementedError: an operation without a rule; the message names this file.
    """
    if bias == by:
        return _ONE
    if bias.kind != "real" or bias.op == "read":
        return _ZERO
    if by.op not in bias.ops() or by not in bias.walk():
        return _ZERO  # a part at a kink of its own would make it NaN
    rule = _RULES.get(bias.op)
    if rule is None:
        raise NotImplementedError(f"no derivative of {bias.op!r}: add it to codegen/derivative.py")
    return rule(bias, by)


def _sum(node: Node, by: Node) -> Node:
    parts = [derivative(arg, by) for arg in node.args]
    return nodes.add(*[part for part in parts if part != _ZERO] or [_ZERO])


def _product(node: Node, by: Node) -> Node:
    terms = []
    for place, factor in enumerate(node.args):
        slope = derivative(factor, by)
        if slope != _ZERO:
            others = node.args[:place] + node.args[place + 1 :]
            terms.append(nodes.mul(*others, slope) if slope != _ONE else nodes.mul(*others))
    return nodes.add(*terms)


def _quotient(node: Node, by: Node) -> Node:
    top, bottom = node.args
    slope = nodes.divide(derivative(top, by), bottom)
    change = derivative(bottom, by)
    if change == _ZERO:
        return slope
    lost = nodes.divide(nodes.mul(top, change), nodes.mul(bottom, bottom))
    return nodes.subtract(slope, lost)


def _where(node: Node, by: Node) -> Node:
    condition, then, otherwise = node.args
    return nodes.where(condition, derivative(then, by), derivative(otherwise, by))


def _extremum(node: Node, by: Node) -> Node:
    """The derivative of the smallest (largest) argument, two by two: half of both at a tie, as in
    torch."""
    result, chosen = derivative(node.args[0], by), node.args[0]
    for arg in node.args[1:]:
        larger, smaller = (arg, chosen) if node.op == "max" else (chosen, arg)
        of_arg = derivative(arg, by)
        tied = nodes.mul(nodes.const(0.5), nodes.add(result, of_arg))
        result = nodes.where(nodes.gt(smaller, larger), result, tied)
        result = nodes.where(nodes.gt(larger, smaller), of_arg, result)
        chosen = nodes.maximum(chosen, arg) if node.op == "max" else nodes.minimum(chosen, arg)
    return result


def _call(node: Node, by: Node) -> Node:
    x = node.args[0]
    outer = function_of(node).derivative(node, x)
    inner = derivative(x, by)
    if _ZERO in (outer, inner):
        return _ZERO
    return outer if inner == _ONE else nodes.mul(outer, inner)


def _power(node: Node, by: Node) -> Node:
    """b c**(b - 1) c' + c**b log(c) b'; the second term for positive bases alone."""
    base, exponent = node.args
    terms = []
    of_base, of_exponent = derivative(base, by), derivative(exponent, by)
    if of_base != _ZERO:
        lower = nodes.power(base, nodes.subtract(exponent, _ONE))
        terms.append(nodes.mul(exponent, lower, of_base))
    if of_exponent != _ZERO:
        terms.append(nodes.mul(node, nodes.call("log", base), of_exponent))
    return nodes.add(*terms)


def _flat(node: Node, by: Node) -> Node:
    return _ZERO


def _opaque(node: Node, by: Node) -> Node:
    raise opaque_on_gpu(str(node.data), node.kind == "bool")


_RULES: dict[str, Callable[[Node, Node], Node]] = {
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


def opaque_on_gpu(name: str, is_mask: bool) -> BackendError:
    dense = "ma.dense(mask.to_dense(q_len, kv_len, batch=…, heads=…))"
    return BackendError(
        f"{name} was taken with opaque=True, and GPU kernels hold formulas alone. "
        + (f"Write {dense} for a tensor of its values" if is_mask else "Write it as a formula")
        + ", or use backend='reference'."
    )
