"""Formulas as SymPy expressions: symbols, and monotone functions with their exact inverses.

The one door between formulas and SymPy. Each function f here satisfies, over the integers,

    f(x) >= n  <=>  x >= lower(n)        f(x) <= n  <=>  x <= upper(n)

so eliminating a quantifier loses no position.

| f(x)                      | f(x) >= n            | f(x) <= n             |
|---------------------------|----------------------|-----------------------|
| floor(x / c), c >= 1      | x >= c n             | x <= c n + c - 1      |
| first(x), start(x)        | x >= last'(n-1) + 1  | x <= last'(n)         |
| last(x), end(x)           | x >= first'(n)       | x <= first'(n+1) - 1  |
| next(x)                   | x >= previous(n-1)+1 | x <= previous(n)      |
| previous(x)               | x >= next(n)         | x <= next(n+1) - 1    |

`first(x)` is the first key that any query from x on may keep, `last(x)` the last key that any
query up to x may keep; `start` and `end` delimit the keys that all of them surely keep. The prime
is the same table from keys back to queries; for documents with one tensor of ids it is the table
itself. `start` pairs with `end` as `first` does with `last`. `next(x)` is the first member of a
set of positions at or after x, `previous(x)` the last one up to x.
"""

from __future__ import annotations

from typing import Any, cast

import sympy as sp
import sympy.tensor.tensor  # SymPy's first sum imports it: 20 ms that are no part of a proof

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot, common_order
from ..formula.printing import formula_text
from ..formula.separation import positions
from .closed_forms import ROW_FIRST, ROW_LAST

PARTNER = {
    "first": "last",
    "last": "first",
    "start": "end",
    "end": "start",
    "next": "previous",
    "previous": "next",
}

_ASCENDING = ("first", "start", "next")  # f(x) >= n from some x on: the partner looks back


def expanded(expression: Any) -> Any:
    """`sp.expand`, without its hundred microseconds if there is nothing to expand."""
    for term in sp.Add.make_args(expression):
        for factor in sp.Mul.make_args(term):
            if factor.is_Add or factor.is_Pow:
                return sp.expand(expression)
    return expression


def holds(expression: Any, symbol: Any) -> bool:
    """Whether the symbol occurs in the expression; SymPy's `has` takes ten times as long."""
    return expression is symbol or any(holds(part, symbol) for part in expression.args)


class FloorDiv(sp.Function):  # type: ignore[misc]
    """floor(x / c) for c >= 1, with multiples of c taken out of x."""

    nargs = 2
    is_integer = True

    @classmethod
    def eval(cls, x: Any, c: Any) -> Any:
        if c == 1:
            return x
        if x.is_Integer and c.is_Integer:
            return x // c
        inside, outside = [], []
        plain = expanded(x)
        for term in sp.Add.make_args(plain):
            quotient = _quotient(term, c)
            if quotient is None:
                inside.append(term)
            else:
                outside.append(quotient)
        if not outside:
            return None if plain is x else cls(plain, c)
        return sp.Add(*outside) + cls(sp.Add(*inside), c)

    def _sympystr(self, printer: Any) -> str:
        x, c = self.args
        left = printer.parenthesize(x, sp.printing.precedence.PRECEDENCE["Mul"])
        return f"({left} // {printer.parenthesize(c, 100)})"


class Entry(sp.Function):  # type: ignore[misc]
    """A function of one index, not known to be monotone: `Entry(name, q)`."""

    nargs = 2
    is_integer = True

    def _sympystr(self, printer: Any) -> str:
        return str(self.args[0])


def ceil_div(x: Any, c: Any) -> Any:
    """ceil(x / c) for c >= 1."""
    return x if c == 1 else FloorDiv(x + c - 1, c)


class Step(sp.Function):  # type: ignore[misc]
    """A monotone table of a family, by name: `Step("first", family, inverse, x)`."""

    nargs = 4
    is_integer = True

    @property
    def table(self) -> str:
        return cast(str, self.args[0].name)

    @property
    def family(self) -> str:
        return cast(str, self.args[1].name)

    @property
    def inverse(self) -> bool:
        return bool(self.args[2])

    @property
    def position(self) -> Any:
        return self.args[3]

    def partner(self, position: Any) -> Any:
        """The table of the other kind in the other direction, at `position`."""
        own = self.table in ("next", "previous")
        direction = 0 if self.inverse or own else 1
        return Step(sp.Symbol(PARTNER[self.table]), self.args[1], sp.Integer(direction), position)

    def _sympystr(self, printer: Any) -> str:
        prime = "'" if self.inverse else ""
        return f"{self.table}{prime}_{self.family}({printer.doprint(self.position)})"


def lower(function: Any, n: Any) -> tuple[Any, Any]:
    """(x, bound) such that function >= n  <=>  x >= bound."""
    if isinstance(function, FloorDiv):
        x, c = function.args
        return x, c * n
    if isinstance(function, Step):
        if function.table in _ASCENDING:
            return function.position, function.partner(n - 1) + 1
        return function.position, function.partner(n)
    raise NotImplementedError(f"no inverse of {function.func}: add it to proof/symbols.py")


def upper(function: Any, n: Any) -> tuple[Any, Any]:
    """(x, bound) such that function <= n  <=>  x <= bound."""
    if isinstance(function, FloorDiv):
        x, c = function.args
        return x, c * n + c - 1
    if isinstance(function, Step):
        if function.table in _ASCENDING:
            return function.position, function.partner(n)
        return function.position, function.partner(n + 1) - 1
    raise NotImplementedError(f"no inverse of {function.func}: add it to proof/symbols.py")


def _quotient(term: Any, c: Any) -> Any:
    """term / c when that is a whole polynomial, else None."""
    if c.is_Integer:
        coefficient, rest = term.as_coeff_Mul()
        return (coefficient // c) * rest if coefficient % c == 0 else None
    factors = list(sp.Mul.make_args(term))
    if c in factors:
        factors.remove(c)
        return sp.Mul(*factors)
    return None


q, k = sp.Symbol("q", integer=True), sp.Symbol("k", integer=True)
q0, q1 = sp.Symbol("q0", integer=True), sp.Symbol("q1", integer=True)


class Unsupported(Exception):
    """A formula that the proof does not reason about; the message says which part."""


class Symbols:
    """The symbols of one structure: the formula that each stands for, and its declared bound."""

    def __init__(self) -> None:
        self.lows: dict[Any, int] = {q: 0, k: 0, q0: 0}
        self.nodes: dict[Any, Node] = {q: nodes.Q, k: nodes.K, q0: ROW_FIRST, q1: ROW_LAST}
        self.families: dict[str, tuple[Node, Node]] = {}
        self.clamped: set[str] = set()
        self.sets: dict[str, Node] = {}
        self.entries: dict[Any, Node] = {}

    def to_sympy(self, node: Node) -> Any:
        """An integer formula as a SymPy expression.

        Raises:
            Unsupported: a divisor may be 0 or negative, the formula is not an integer, or a part
                that the proof does not reason about reads both indices.
        """
        op, args = node.op, node.args
        if op == "const" and node.kind == "int":
            return sp.Integer(cast(int, node.data))
        if op == "index":
            return self._index(node)
        if op == "scalar" and node.kind == "int":
            slot = cast(Slot, node.own[0])
            return self._symbol(slot.name, node, slot.low)
        if op == "extent":
            return self._symbol(f"{node.own[0].name}.shape[{node.data}]", node, 0)
        if op == "add":
            return sp.Add(*[self.to_sympy(arg) for arg in args])
        if op == "mul":
            return sp.Mul(*[self.to_sympy(arg) for arg in args])
        if op in ("floordiv", "mod"):
            x, c = self.to_sympy(args[0]), self.divisor(args[1])
            return FloorDiv(x, c) if op == "floordiv" else x - c * FloorDiv(x, c)
        if op in ("read", "max") and not positions(node):
            return self._per_row_constant(node) or self._entry(node)
        return self._entry(node)

    def members(self, formula: Node, which: str, position: Any) -> Any:
        """The next or previous query at which `formula` holds, as a monotone function."""
        name = next((name for name, known in self.sets.items() if known == formula), None)
        if name is None:
            count = len(self.sets) + 1
            while f"set{count}" in (self.families.keys() | self.sets.keys()):
                count += 1
            name = f"set{count}"
            self.sets[name] = formula
        return Step(sp.Symbol(which), sp.Symbol(name), sp.Integer(0), position)

    def _entry(self, node: Node) -> Any:
        """A part of a formula that reads one index at most, as an unknown function."""
        indices = positions(node)
        if node.kind == "int" and not indices:
            return self._symbol(formula_text(node), node, None)
        if node.kind != "int" or len(indices) != 1:
            raise Unsupported(f"{formula_text(node)} takes no part in the proof")
        entry = Entry(sp.Symbol(formula_text(node)), q if "q_idx" in indices else k)
        count = 1
        while self.entries.setdefault(entry, node) != node:
            count += 1
            entry = Entry(sp.Symbol(f"{formula_text(node)} #{count}"), entry.args[1])
        return entry

    def divisor(self, node: Node) -> Any:
        c = self.to_sympy(node)
        if c.is_Integer and c >= 1:
            return c
        if c.is_Symbol and self.lows.get(c, 0) >= 1:
            return c
        raise Unsupported(f"division by {c}, which is not known to be positive")

    def step(self, q_read: Node, kv_read: Node) -> StepPair:
        """The step family of `table[q'] == table[k']`, with both positions as expressions."""
        q_slot, kv_slot = cast(Slot, q_read.own[0]), cast(Slot, kv_read.own[0])
        name = q_slot.name if q_slot is kv_slot else f"{q_slot.name}_{kv_slot.name}"
        # The same names read with other batch indices, or other tables, are another family.
        count = 1
        # No call checks a position that tensors move: it may leave the table, where reads are
        # clamped, and first(x) <= n no longer bounds x.
        clamped = any(node.op == "read" for node in q_read.args[-1].walk())
        wanted = _tables(q_read, kv_read), clamped
        while name in self.sets or (
            name in self.families
            and wanted != (_tables(*self.families[name]), name in self.clamped)
        ):
            count += 1
            name = f"{name}_{count}"
        self.families.setdefault(name, (q_read, kv_read))
        if clamped:
            self.clamped.add(name)
        x, y = (expanded(self.to_sympy(read.args[-1])) for read in (q_read, kv_read))
        return StepPair(name, q_slot is kv_slot, x, y)

    def own_ids(self, family: str) -> bool:
        """Whether queries and keys read one tensor, so that x's interval contains x."""
        if family in self.sets:
            return False
        q_read, kv_read = self.families[family]
        return q_read.own[0] is kv_read.own[0] and q_read.args[:-1] == kv_read.args[:-1]

    def to_node(self, expression: Any) -> Node:
        """A SymPy expression back as a formula over `q0, q1`, batch, head and slots."""
        if expression.is_Integer:
            return nodes.const(int(expression))
        if expression.is_Symbol:
            return self.nodes[expression]
        if expression.is_Add:
            return nodes.add(*[self.to_node(arg) for arg in expression.args])
        if expression.is_Mul:
            return nodes.mul(*[self.to_node(arg) for arg in expression.args])
        if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
            return nodes.mul(*[self.to_node(expression.base)] * int(expression.exp))
        if isinstance(expression, FloorDiv):
            x, c = expression.args
            return nodes.floordiv(self.to_node(x), self.to_node(c))
        if isinstance(expression, Step):
            return self._step_node(expression)
        if isinstance(expression, Entry):
            return self.entries[expression]
        raise NotImplementedError(f"no formula for {expression}: add it to proof/symbols.py")

    def _step_node(self, step: Step) -> Node:
        if step.family in self.sets:
            args = (self.sets[step.family], nodes.BATCH, nodes.HEAD, self.to_node(step.position))
            return Node("member", "int", args, step.table)
        q_read, kv_read = self.families[step.family]
        own = (q_read.own[0], kv_read.own[0])
        table = step.table
        if common_order(*own) is not None:
            table = {"start": "first", "end": "last"}.get(table, table)  # the same tables
        data = table + ("'" if step.inverse and not self.own_ids(step.family) else "")
        position = self.to_node(step.position)
        # Tables have a row for each batch entry if either tensor of ids does.
        leading = q_read.args[:-1] or kv_read.args[:-1]
        return Node("step", "int", (*leading, position), data, own)

    def _index(self, node: Node) -> Any:
        known = {"q_idx": q, "kv_idx": k}
        if node.data in known:
            return known[node.data]
        return self._symbol(cast(str, node.data), node, 0)

    def _per_row_constant(self, node: Node) -> Any:
        """The symbol of an entry that depends on batch and head alone, a parameter like others."""
        low, read = None, node
        if node.op == "max":
            reads = [arg for arg in node.args if arg.op == "read"]
            floors = [arg for arg in node.args if arg.op == "const"]
            if len(reads) != 1 or len(floors) != 1 or len(node.args) != 2:
                return None
            read, low = reads[0], cast(int, floors[0].data)
        if read.kind != "int":
            raise Unsupported(f"the entries of {read.own[0].name}")
        indices = ", ".join(formula_text(arg) for arg in read.args)
        name = f"{read.own[0].name}[{indices}]" if indices else read.own[0].name
        if low != cast(Slot, read.own[0]).low:
            name = f"max({name}, {low})"
        return self._symbol(name, node, low)

    def _symbol(self, name: str, node: Node, low: int | None) -> Any:
        symbol, count = sp.Symbol(name, integer=True), 1
        while self.nodes.setdefault(symbol, node) != node:
            count += 1
            symbol = sp.Symbol(f"{name} #{count}", integer=True)
        if low is not None:
            self.lows[symbol] = low
        return symbol


class StepPair:
    """An equality of table entries at positions x (from queries) and y (from keys)."""

    def __init__(self, family: str, own: bool, x: Any, y: Any) -> None:
        self.family, self.own, self.x, self.y = family, own, x, y

    def at(self, table: str) -> Any:
        """The table `first`, `last`, `start` or `end` at x."""
        return Step(sp.Symbol(table), sp.Symbol(self.family), sp.Integer(0), self.x)


def _tables(q_read: Node, kv_read: Node) -> str:
    """The key of a family: the two tables, and the indices before the position."""
    reads = (q_read, kv_read)
    return " ".join(
        read.own[0].text + "".join(arg.skeleton for arg in read.args[:-1]) for read in reads
    )
