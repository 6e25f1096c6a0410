"""The formula: one small frozen node type, hashed as it is built.

A node knows its *skeleton*, the text of its structure with every value left out, and the
parameters it reads in the order of that text. No SymPy here: building the mask of a layer must
cost microseconds. `nodes` has the functions that build nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

from .parameters import Kind, Parameter

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
    "along",  # what args[0] gives at a distance, as kernels read it from a table (their text only)
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
        """Structure and values as text, whichever order equal structures were joined in."""
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
    """The arguments of a sum or a product as they are combined, one after the other.

    Each step rounds real numbers. Theirs is an order that no shape changes, and all that computes
    a mask keeps to it: those that read fewer indices come first.
    """
    if node.kind != "real":
        return node.args
    return tuple(sorted(node.args, key=lambda arg: len(arg.indices())))
