"""A formula over a rectangle of the matrix as JavaScript: ranges of values, in three-valued logic.

An integer becomes the range `[low, high]` of its values over queries q0..q1 and keys k0..k1, or a
wider one. A condition becomes NO (holds nowhere), YES (holds everywhere) or SOME (unknown). The
page halves rectangles until each part is decided; for a single element it computes the formula
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from ...formula import nodes
from ...formula.nodes import Node
from ...formula.separation import positions
from .javascript import JavaScript, slot_index

UNKNOWN: Final = "UNKNOWN"


def truth(node: Node, js: JavaScript) -> str:
    """Whether a condition holds everywhere, nowhere, or possibly for some."""
    if not positions(node):
        return f"({js(node)} ? YES : NO)"
    if node.op == "not":
        return f"(2 - {truth(node.args[0], js)})"
    if node.op in ("and", "or"):
        function = "every" if node.op == "and" else "any"
        parts = [f"() => {truth(arg, js)}" for arg in node.args]
        return f"{function}({', '.join(parts)})"
    if node.op == "read":
        return f"flags({entries(node, js)})"
    if node.op in ("ge", "eq") and all(arg.kind == "int" for arg in node.args):
        function = "notNegative" if node.op == "ge" else "zero"
        return f"{function}({values(nodes.subtract(*node.args), js)})"
    return "SOME"


def values(node: Node, js: JavaScript) -> str:
    """The range of an integer formula."""
    if not positions(node):
        return f"point({js(node)})"
    rule = _RULES.get(node.op)
    return UNKNOWN if rule is None else rule(node, js)


def entries(node: Node, js: JavaScript) -> str:
    places = [values(arg, js) for arg in node.args]
    return f"entries(T[{slot_index(node)}], {', '.join(places)})"


def _sum(node: Node, js: JavaScript) -> str:
    still = [term for term in node.args if not positions(term)]
    moving = [values(term, js) for term in node.args if positions(term)]
    if still:
        moving.append(f"point({js(nodes.add(*still))})")
    return _applied("plus")(moving)


def _choice(node: Node, js: JavaScript) -> str:
    condition, then, otherwise = node.args
    return f"choice({truth(condition, js)}, {values(then, js)}, {values(otherwise, js)})"


def _applied(function: str) -> Callable[[list[str]], str]:
    return lambda parts: f"{function}({', '.join(parts)})"


def _joined(function: str) -> Rule:
    return lambda node, js: _applied(function)([values(arg, js) for arg in node.args])


Rule = Callable[[Node, JavaScript], str]

_RULES: Final[dict[str, Rule]] = {
    "index": lambda node, js: {"q_idx": "[q0, q1]", "kv_idx": "[k0, k1]"}[cast(str, node.data)],
    "add": _sum,
    "mul": _joined("times"),
    "floordiv": _joined("quotient"),
    "mod": _joined("remainder"),
    "min": _joined("least"),
    "max": _joined("most"),
    "where": _choice,
    "read": entries,
}
