"""Real functions of torch as formulas: those with a node, and others composed of these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ...formula import nodes
from ...formula.functions import FUNCTIONS
from ...formula.nodes import Node
from .arithmetic import differentiable, number, real

Rule = Callable[[Node], Node]

_OF_INTEGERS: Final = ("abs", "floor", "ceil", "float")
"""Functions with other rules, because they take integers too."""


def _call(function: str) -> Rule:
    return lambda x: nodes.call(function, number(x))


def _rounding(function: str) -> Rule:
    """A rounding function; an integer stays as it is."""
    return lambda x: number(x) if x.kind != "real" else nodes.call(function, x)


def _half(x: Node) -> Node:
    return nodes.mul(nodes.const(0.5), x)


def _exp(x: Node) -> Node:
    return nodes.call("exp", x)


def _reciprocal(x: Node) -> Node:
    return nodes.divide(nodes.const(1.0), real(x))


def _gelu(x: Node) -> Node:
    x = real(x)
    share = nodes.add(nodes.const(1.0), nodes.call("erf", nodes.mul(x, nodes.const(0.5**0.5))))
    return _half(nodes.mul(x, share))


def gelu_tanh(x: Node) -> Node:
    """The approximation of gelu by a hyperbolic tangent."""
    x = real(x)
    cubed = nodes.mul(nodes.const(0.044715), x, x, x)
    inner = nodes.mul(nodes.const(math.sqrt(2 / math.pi)), nodes.add(x, cubed))
    return _half(nodes.mul(x, nodes.add(nodes.const(1.0), nodes.call("tanh", inner))))


def _softplus(x: Node) -> Node:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    x = real(x)
    small = _exp(nodes.negate(nodes.call("abs", x)))
    return nodes.add(nodes.maximum(x, nodes.const(0.0)), nodes.call("log1p", small))


def _log_sigmoid(x: Node) -> Node:
    return nodes.negate(_softplus(nodes.negate(real(x))))


def _sinh(x: Node) -> Node:
    return _half(nodes.subtract(_exp(real(x)), _exp(nodes.negate(real(x)))))


def _cosh(x: Node) -> Node:
    return _half(nodes.add(_exp(real(x)), _exp(nodes.negate(real(x)))))


def _relu(x: Node) -> Node:
    x = number(x)
    zero = nodes.const(0.0) if x.kind == "real" else nodes.const(0)
    if not differentiable(x):
        return nodes.maximum(x, zero)
    return nodes.where(nodes.ge(zero, x), zero, x)  # at 0 with gradient 0, as torch has it


def _elu(x: Node) -> Node:
    x = real(x)
    return nodes.where(nodes.gt(x, nodes.const(0.0)), x, nodes.call("expm1", x))


REALS: Final[dict[str, Rule]] = {
    **{name: _call(name) for name in FUNCTIONS if name not in _OF_INTEGERS},
    "expit": _call("sigmoid"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": lambda x: number(x) if x.kind != "real" else real(nodes.truncated(x)),
    "fix": lambda x: number(x) if x.kind != "real" else real(nodes.truncated(x)),
    "log10": lambda x: nodes.mul(nodes.const(1 / math.log(10)), nodes.call("log", number(x))),
    "rsqrt": lambda x: _reciprocal(nodes.call("sqrt", number(x))),
    "reciprocal": _reciprocal,
    "sinh": _sinh,
    "cosh": _cosh,
    "relu": _relu,
    "gelu": _gelu,
    "silu": lambda x: nodes.mul(real(x), nodes.call("sigmoid", real(x))),
    "elu": _elu,
    "softplus": _softplus,
    "logsigmoid": _log_sigmoid,
    "log_sigmoid": _log_sigmoid,
}
