"""Functions of index expressions: `bias(-log(1 + abs(q_idx - kv_idx)))`, `maximum(q_idx, 8)`."""

from __future__ import annotations

from ..formula import nodes
from .in_torch import as_in_torch
from .index import Index, as_node

__all__ = [
    "cos",
    "exp",
    "floor",
    "log",
    "maximum",
    "minimum",
    "power",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "truncate",
]


@as_in_torch
def minimum(left: Index | float, right: Index | float) -> Index:
    """The smaller of `left` and `right`, index expressions or numbers."""
    return Index(nodes.minimum(as_node(left), as_node(right)))


@as_in_torch
def maximum(left: Index | float, right: Index | float) -> Index:
    """The larger of `left` and `right`, index expressions or numbers."""
    return Index(nodes.maximum(as_node(left), as_node(right)))


@as_in_torch
def exp(x: Index | float) -> Index:
    """e to the power of `x`, an index expression or a number."""
    return _call("exp", x)


@as_in_torch
def log(x: Index | float) -> Index:
    """The natural logarithm of `x`: -inf at 0, NaN below."""
    return _call("log", x)


@as_in_torch
def sqrt(x: Index | float) -> Index:
    """The square root of `x`; NaN below 0."""
    return _call("sqrt", x)


@as_in_torch
def sin(x: Index | float) -> Index:
    """The sine of `x`, in radians."""
    return _call("sin", x)


@as_in_torch
def cos(x: Index | float) -> Index:
    """The cosine of `x`, in radians."""
    return _call("cos", x)


@as_in_torch
def tan(x: Index | float) -> Index:
    """The tangent of `x`, in radians."""
    return _call("tan", x)


@as_in_torch
def tanh(x: Index | float) -> Index:
    """The hyperbolic tangent of `x`."""
    return _call("tanh", x)


@as_in_torch
def floor(x: Index | float) -> Index:
    """The largest whole number that is at most `x`, as a real number; see `truncate`."""
    return _call("floor", x)


def power(base: Index | float, exponent: Index | float) -> Index:
    """`base ** exponent`; NaN for a negative base unless the exponent is whole.

    The gradient with respect to the exponent is that of positive bases.
    """
    return Index(nodes.power(as_node(base), as_node(exponent)))


def truncate(x: Index | float) -> Index:
    """A real expression as an integer, rounded towards zero: an index of a table.

    Infinite numbers and those past 32 bits count as 2**31 - 128 or its negative, NaN as 0.

    `table(buckets)[head, truncate(log(1 + abs(q_idx - kv_idx)))]`
    """
    return Index(nodes.truncated(as_node(x)))


def _call(function: str, x: Index | float) -> Index:
    return Index(nodes.call(function, as_node(x)))
