"""Formulas: one small frozen node type, the functions that build nodes, and rewriting.

A node is hashed as it is built. It knows its *skeleton*, the text of its structure with every
value left out, and the parameters it reads in the order of that text. Arguments of commutative
operations are sorted by skeleton, so `a & b` and `b & a` are the same structure; sums and products
fold their constants. No SymPy here: building the mask of a layer must cost microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, cast

import torch

from .parameters import Kind, Parameter, Scalar, Slot, Table

Op = Literal[
    # leaves
    "index",  # data: its name, such as "q_idx"
    "const",  # data: bool, int or float
    "scalar",  # a number bound from outside
    "read",  # a table at the indices in args
    "extent",  # the size of a table along a dimension; data: which
    "step",  # a monotone table derived from document ids (closed forms only); data: which
    "member",  # the next or previous query of a set (closed forms only); data: which
    "score",  # the scaled score a bias transforms
    "along",  # args[0] at a distance, which kernels read from a table (in their text only)
    "opaque",  # data: a function of the values of args that is no formula
    # integers and reals
    "add",
    "mul",
    "floordiv",
    "mod",
    "min",
    "max",
    "where",
    "div",
    "pow",  # a real power
    "call",  # data: name of a row of `functions.py`
    "trunc",  # a real number as an integer, rounded towards zero
    "bitand",
    "bitor",
    "bitxor",
    # booleans
    "ge",
    "gt",
    "eq",
    "and",
    "or",
    "not",
]

COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "eq", "bitand", "bitor", "bitxor")


class Node:
    """One operation of a formula; compare with `==`, share freely, never change."""

    __slots__ = (
        "_canonical",
        "_grows",
        "_indices",
        "_ops",
        "args",
        "data",
        "kind",
        "op",
        "params",
        "skeleton",
    )

    op: Op
    args: tuple[Node, ...]
    data: object
    kind: Kind
    params: tuple[Parameter, ...]
    skeleton: str
    _canonical: str
    _grows: bool
    _indices: frozenset[str]
    _ops: frozenset[Op]

    def __init__(
        self,
        op: Op,
        kind: Kind,
        args: tuple[Node, ...] = (),
        data: object = None,
        own: tuple[Parameter, ...] = (),
    ) -> None:
        self.op = op
        self.kind = kind
        self.args = args
        self.data = data
        # Written out for speed: a mask of a layer is some thirty nodes, built on every call.
        params = own
        text = op if data is None else f"{op} {data}"
        for parameter in own:
            text += " " + parameter.text
        for arg in args:
            if arg.params:
                params += arg.params
            text += " " + arg.skeleton
        self.params = params
        self.skeleton = f"({text})"

    @property
    def own(self) -> tuple[Parameter, ...]:
        """The parameters this node reads itself, not through its arguments."""
        return self.params[: len(self.params) - sum(len(arg.params) for arg in self.args)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        if self is other:
            return True
        return self.skeleton == other.skeleton and self.canonical == other.canonical

    @property
    def canonical(self) -> str:
        """Structure and values as text, the same for all orders of commutative arguments."""
        try:
            return self._canonical
        except AttributeError:
            inner = [arg.canonical for arg in self.args]
            if self.op in COMMUTATIVE:
                inner.sort()
            own = [repr(p.identity) for p in self.own]
            self._canonical = f"({self.op} {self.data} {' '.join(own + inner)})"
            return self._canonical

    def __getstate__(self) -> tuple[object, ...]:
        return self.op, self.kind, self.args, self.data, self.own

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Node.__init__(self, *state)

    def __hash__(self) -> int:
        return hash(self.skeleton)

    def __repr__(self) -> str:
        return self.skeleton

    def walk(self) -> Iterator[Node]:
        """Every node of the formula, arguments first."""
        for arg in self.args:
            yield from arg.walk()
        yield self

    def indices(self) -> frozenset[str]:
        """Names of the indices the formula depends on."""
        try:
            return self._indices
        except AttributeError:
            own = {cast(str, self.data)} if self.op == "index" else ()
            self._indices = frozenset(own).union(*[arg.indices() for arg in self.args])
            return self._indices

    def ops(self) -> frozenset[Op]:
        """The operations of the formula."""
        try:
            return self._ops
        except AttributeError:
            self._ops = frozenset((self.op,)).union(*[arg.ops() for arg in self.args])
            return self._ops

    @property
    def grows(self) -> bool:
        """Whether integers are multiplied, other than by -1, or one has over 32 bits."""
        try:
            return self._grows
        except AttributeError:
            large = self.op == "const" and self.kind == "int" and abs(cast(int, self.data)) >> 32
            signs = sum(arg.op == "const" and arg.data == -1 for arg in self.args)
            product = self.op == "mul" and self.kind == "int" and len(self.args) - signs > 1
            self._grows = product or bool(large) or any(arg.grows for arg in self.args)
            return self._grows


def in_order(node: Node) -> tuple[Node, ...]:
    """The arguments of a sum or a product, in the order in which they are combined.

    Each step rounds real numbers, so everything that computes a mask keeps to one order, whatever
    the shapes: arguments that read fewer indices come first.
    """
    if node.kind != "real":
        return node.args
    return tuple(sorted(node.args, key=lambda arg: len(arg.indices())))


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
    """A sum; its integers are added as integers, because float32 would round them."""
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
    if _are_integers(left, right) and cast(int, right.data) >= 1:
        return const(cast(int, left.data) // cast(int, right.data))
    return Node("floordiv", "int", (left, right))


def mod(left: Node, right: Node) -> Node:
    """The remainder with the sign of the divisor, as in Python."""
    if right.op == "const" and right.data == 1:
        return _SMALL[0]
    if _are_integers(left, right) and cast(int, right.data) >= 1:
        return const(cast(int, left.data) % cast(int, right.data))
    return Node("mod", "int", (left, right))


def _are_integers(left: Node, right: Node) -> bool:
    """Whether both are integer constants; real ones are not folded, but round as in kernels."""
    return left.op == right.op == "const" and left.kind == right.kind == "int"


def divide(left: Node, right: Node) -> Node:
    return Node("div", "real", (left, right))


def minimum(*args: Node) -> Node:
    return _extreme("min", args)


def maximum(*args: Node) -> Node:
    return _extreme("max", args)


def _extreme(op: Literal["min", "max"], args: tuple[Node, ...]) -> Node:
    flat = _flatten(op, args)
    written = [cast(int, arg.data) for arg in flat if arg.op == "const"]
    if len(written) > 1 and numeric(flat) == "int":
        found = min(written) if op == "min" else max(written)
        flat = [*[arg for arg in flat if arg.op != "const"], const(found)]
    return flat[0] if len(flat) == 1 else Node(op, numeric(flat), _ordered(flat))


def where(condition: Node, then: Node, otherwise: Node) -> Node:
    return Node("where", numeric([then, otherwise]), (condition, then, otherwise))


def call(function: str, argument: Node) -> Node:
    """A function of a number, by its name in `functions.py`."""
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
    if _are_integers(left, right):
        return const(cast(int, left.data) >= cast(int, right.data))
    return Node("ge", "bool", (left, right))


def gt(left: Node, right: Node) -> Node:
    if left.kind == "int" and right.kind == "int":
        return ge(left, add(right, const(1)))
    return Node("gt", "bool", (left, right))


def eq(left: Node, right: Node) -> Node:
    if _are_integers(left, right):
        return const(left.data == right.data)
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
    """The formula with `replace(node)` in place of each node for which it is not None."""

    def other(node: Node, visit: Callable[[Node], Node]) -> Node:
        found = replace(node)
        return rebuild(node, tuple(map(visit, node.args))) if found is None else found

    return _rewritten(node, other)


def with_parameters(node: Node, replace: Callable[[Parameter], Parameter]) -> Node:
    """The formula with each parameter replaced; the shape of the formula stays."""

    def other(node: Node, visit: Callable[[Node], Node]) -> Node:
        if not node.params:
            return node
        args = tuple(map(visit, node.args))
        if not node.own:
            return rebuild(node, args)
        return Node(node.op, node.kind, args, node.data, tuple(map(replace, node.own)))

    return _rewritten(node, other)


def _rewritten(node: Node, other: Callable[[Node, Callable[[Node], Node]], Node]) -> Node:
    """The formula rewritten node by node; a part that occurs in many places is rewritten once."""
    # A compiled function that asked for identities would be compiled anew for each mask given it.
    return _rewritten_part(node, other, None if torch.compiler.is_compiling() else {})


def _rewritten_part(
    part: Node,
    other: Callable[[Node, Callable[[Node], Node]], Node],
    done: dict[int, Node] | None,
) -> Node:
    """See `_rewritten`; `done` has parts rewritten before, None to rewrite each anew."""
    found = None if done is None else done.get(id(part))
    if found is None:
        found = other(part, lambda each: _rewritten_part(each, other, done))
        if done is not None:
            done[id(part)] = found
    return found


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
    """Arguments sorted by structure only: values must not decide which slot a parameter takes."""
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


def added(term: Node) -> Node:
    """f(s) - s, without s where f is additive."""
    if term.op == "score":
        return const(0.0)
    if term.op == "add":
        rest = [part for part in term.args if part.op != "score"]
        if len(rest) == len(term.args) - 1 and not any("score" in part.ops() for part in rest):
            return add(*rest)
    return subtract(term, SCORE)


def joined(left: Node, right: Node) -> Node:
    """f(s) + g(s) - s."""
    if left.op == "score":
        return right
    if right.op == "score":
        return left
    return add(left, added(right)) if is_additive(right) else add(right, added(left))


def composed(outer: Node, inner: Node) -> Node:
    """f(g(s))."""
    return substitute(outer, lambda node: inner if node.op == "score" else None)


def chosen(condition: Node, then: Node, otherwise: Node) -> Node:
    """f(s) where the condition holds, else g(s); additive where both are."""
    if is_additive(then) and is_additive(otherwise):
        return add(SCORE, where(condition, added(then), added(otherwise)))
    return where(condition, then, otherwise)


def is_additive(term: Node) -> bool:
    """Whether f(s) - s does not read s."""
    return "score" not in added(term).ops()
