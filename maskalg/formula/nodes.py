"""Builders of formulas, and the rewriting of one into another.

Arguments of commutative operations are sorted by skeleton, so `a & b` and `b & a` are the same
structure; sums and products fold their constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Literal, cast

from .node import Node as Node
from .node import Op
from .parameters import Kind, Parameter, Scalar, Slot, Table

Q = Node("index", "int", data="q_idx")
K = Node("index", "int", data="kv_idx")
BATCH = Node("index", "int", data="batch")
HEAD = Node("index", "int", data="head")
SCORE = Node("score", "real")
TRUE = Node("const", "bool", data=True)
FALSE = Node("const", "bool", data=False)


_SMALL = {value: Node("const", "int", data=value) for value in (-1, 0, 1, 2)}


def const(value: bool | int | float) -> Node:
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if type(value) is int and value in _SMALL:
        return _SMALL[value]
    return Node("const", "int" if isinstance(value, int) else "real", data=value)


def scalar(parameter: Scalar | Slot) -> Node:
    return Node("scalar", parameter.kind, own=(parameter,))


def read(table: Table | Slot, *indices: Node) -> Node:
    """`table[indices]`, one index for each dimension; a declared lower bound is enforced."""
    node = Node("read", table.kind, indices, own=(table,))
    return node if table.low is None else Node("max", "int", _ordered([node, const(table.low)]))


def extent(table: Table, axis: int) -> Node:
    """The size of `table` along `axis`: a number that follows the tensor bound to it."""
    return Node("extent", "int", data=axis, own=(table,))


def add(*terms: Node) -> Node:
    """A sum; its integers are added as integers, which float32 would round."""
    given = _flatten("add", terms)
    kind = numeric(given)
    flat = [term for term in given if term.op != "const"]
    whole = [term for term in flat if term.kind == "int"] if kind == "real" else []
    counted: int = 0
    total: int | float = 0
    for term in given:
        if term.op == "const" and term.kind == "int" and whole:
            counted += cast(int, term.data)
        elif term.op == "const":
            total += cast(int, term.data)
    if len(whole) > 1 or counted != 0:
        flat = [term for term in flat if term.kind == "real"]
        numbers = [const(counted)] if counted != 0 else []
        flat.append(Node("add", "int", _ordered([*whole, *numbers])))
    if total != 0 or not flat:
        flat.append(const(total))
    return flat[0] if len(flat) == 1 else Node("add", numeric(flat), _ordered(flat))


def mul(*factors: Node) -> Node:
    flat: list[Node] = []
    product: int | float = 1
    for factor in _flatten("mul", factors):
        if factor.op == "const":
            product *= cast(int, factor.data)
        else:
            flat.append(factor)
    if product == 0:
        return const(0)
    if product != 1 or not flat:
        flat.append(const(product))
    distributed = flat[0].op == "add" and flat[0].kind == numeric(flat)
    if len(flat) == 2 and product != 1 and distributed:
        return add(*(mul(term, const(product)) for term in flat[0].args))
    return flat[0] if len(flat) == 1 else Node("mul", numeric(flat), _ordered(flat))


def negate(node: Node) -> Node:
    if node.op in ("index", "scalar", "read"):
        return Node("mul", node.kind, _ordered([_SMALL[-1], node]))
    return mul(_SMALL[-1], node)


def subtract(left: Node, right: Node) -> Node:
    return add(left, const(-cast(int, right.data)) if right.op == "const" else negate(right))


def floordiv(left: Node, right: Node) -> Node:
    if right.op == "const" and right.data == 1:
        return left
    return Node("floordiv", "int", (left, right))


def mod(left: Node, right: Node) -> Node:
    """The remainder with the sign of the divisor, as in Python."""
    return Node("mod", "int", (left, right))


def divide(left: Node, right: Node) -> Node:
    return Node("div", "real", (left, right))


def minimum(*args: Node) -> Node:
    flat = _flatten("min", args)
    return flat[0] if len(flat) == 1 else Node("min", numeric(flat), _ordered(flat))


def maximum(*args: Node) -> Node:
    flat = _flatten("max", args)
    return flat[0] if len(flat) == 1 else Node("max", numeric(flat), _ordered(flat))


def where(condition: Node, then: Node, otherwise: Node) -> Node:
    return Node("where", numeric([then, otherwise]), (condition, then, otherwise))


def call(function: str, argument: Node) -> Node:
    """A function of `functions.py` of a number."""
    if function == "float" and argument.kind == "real":
        return argument
    return Node("call", "real", (argument,), data=function)


def power(base: Node, exponent: Node) -> Node:
    """A real power; small whole exponents are products."""
    whole = exponent.data if exponent.op == "const" else None
    if whole in (1, 2, 3, 4) and "real" in (base.kind, exponent.kind):
        base = call("float", base)
    if whole in (1, 2, 3, 4):
        return mul(*[base] * int(cast(float, whole)))
    if whole == 0.5:
        return call("sqrt", base)
    return Node("pow", "real", (base, exponent))


def truncated(node: Node) -> Node:
    """A real number as an integer, rounded towards zero."""
    return node if node.kind == "int" else Node("trunc", "int", (node,))


def bitwise(op: Literal["bitand", "bitor", "bitxor"], *args: Node) -> Node:
    """A bitwise operation on integers."""
    flat = _flatten(op, args)
    return flat[0] if len(flat) == 1 else Node(op, "int", _ordered(flat))


def opaque(function: object, kind: Kind, *args: Node) -> Node:
    """A function of tensors that no formula stands for; `str(function)` tells it from others."""
    return Node("opaque", kind, args, data=function)


def ge(left: Node, right: Node) -> Node:
    return Node("ge", "bool", (left, right))


def gt(left: Node, right: Node) -> Node:
    if left.kind == "int" and right.kind == "int":
        return ge(left, add(right, const(1)))
    return Node("gt", "bool", (left, right))


def eq(left: Node, right: Node) -> Node:
    return Node("eq", "bool", _ordered([left, right]))


def negation(node: Node) -> Node:
    if node.op == "not":
        return node.args[0]
    if node.op == "const":
        return const(not node.data)
    return Node("not", "bool", (node,))


def conjunction(*args: Node) -> Node:
    return _lattice("and", args, unit=TRUE, zero=FALSE)


def disjunction(*args: Node) -> Node:
    return _lattice("or", args, unit=FALSE, zero=TRUE)


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The same operation on other arguments."""
    if len(args) == len(node.args) and all(map(operator.is_, args, node.args)):
        return node
    return _BUILDERS[node.op](*args) if node.op in _BUILDERS else _same(node, args)


def substitute(node: Node, replace: Callable[[Node], Node | None]) -> Node:
    """The formula with each node for which `replace` answers put in its place."""

    def other(node: Node, visit: Callable[[Node], Node]) -> Node:
        found = replace(node)
        return rebuild(node, tuple(map(visit, node.args))) if found is None else found

    return _rewritten(node, other)


def with_parameters(node: Node, replace: Callable[[Parameter], Parameter]) -> Node:
    """The formula with each parameter replaced; the shape of the formula stays."""

    def other(node: Node, visit: Callable[[Node], Node]) -> Node:
        args = tuple(map(visit, node.args))
        if not node.own:
            return rebuild(node, args)
        return Node(node.op, node.kind, args, node.data, tuple(map(replace, node.own)))

    return _rewritten(node, other)


def _rewritten(node: Node, other: Callable[[Node, Callable[[Node], Node]], Node]) -> Node:
    """The formula rewritten node by node; a part that stands in many places is rewritten once."""
    done: dict[int, Node] = {}

    def visit(part: Node) -> Node:
        found = done.get(id(part))
        if found is None:
            found = done[id(part)] = other(part, visit)
        return found

    return visit(node)


def _same(node: Node, args: tuple[Node, ...]) -> Node:
    return Node(node.op, node.kind, args, node.data, node.own)


def _flatten(op: Op, args: Iterable[Node]) -> list[Node]:
    flat: list[Node] = []
    for arg in args:
        if arg.op == op:
            flat += arg.args
        else:
            flat.append(arg)
    return flat


def _skeleton(node: Node) -> str:
    # Not `operator.attrgetter`, which torch.compile does not follow.
    return node.skeleton


def _ordered(args: list[Node]) -> tuple[Node, ...]:
    """By structure alone: values must not decide which slot a parameter takes."""
    return tuple(sorted(args, key=_skeleton))


def numeric(args: Iterable[Node]) -> Kind:
    """The kind of a number computed from these."""
    for arg in args:
        if arg.kind == "real":
            return "real"
    return "int"


def _lattice(op: Literal["and", "or"], args: Iterable[Node], unit: Node, zero: Node) -> Node:
    flat: list[Node] = []
    for arg in _flatten(op, args):
        if arg.op == "const":
            if arg.data == zero.data:
                return zero
        elif arg.params or arg not in flat:
            flat.append(arg)
    if not flat:
        return unit
    return flat[0] if len(flat) == 1 else Node(op, "bool", _ordered(flat))


_BUILDERS: dict[Op, Callable[..., Node]] = {
    "add": add,
    "mul": mul,
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
    "where": where,
    "div": divide,
    "ge": ge,
    "gt": gt,
    "eq": eq,
    "and": conjunction,
    "or": disjunction,
    "not": negation,
}
