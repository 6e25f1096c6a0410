"""The one door between formulas and SymPy."""

from __future__ import annotations

from typing import Any, cast

import sympy as sp
import sympy.tensor.tensor  # SymPy's first sum imports it: 20 ms that are no part of a proof

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Slot, common_order
from ..formula.printing import formula_text
from .functions import Entry, FloorDiv, Step, expanded

q, k = sp.Symbol("q", integer=True), sp.Symbol("k", integer=True)
q0, q1 = sp.Symbol("q0", integer=True), sp.Symbol("q1", integer=True)

ROW_FIRST = Node("index", "int", data="q0")
ROW_LAST = Node("index", "int", data="q1")


class Unsupported(Exception):
    """A formula the proof does not reason about; the message says which part."""


class Symbols:
    """The symbols of one structure: what each stands for, and the bound declared for it."""

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
            Unsupported: the formula divides by what may not be positive, is not an integer, or
                has a part that the proof does not reason about and that reads both indices.
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
        if op in ("read", "max") and not node.indices() & {"q_idx", "kv_idx"}:
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
        """A part of a formula, of one index at most, as a function nothing is known of."""
        indices = node.indices() & {"q_idx", "kv_idx"}
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
        # The tables are per batch when either tensor of ids is.
        leading = q_read.args[:-1] or kv_read.args[:-1]
        return Node("step", "int", (*leading, position), data, own)

    def _index(self, node: Node) -> Any:
        known = {"q_idx": q, "kv_idx": k}
        if node.data in known:
            return known[node.data]
        return self._symbol(cast(str, node.data), node, 0)

    def _per_row_constant(self, node: Node) -> Any:
        """A table entry that depends on batch and head alone is a parameter like any other."""
        low, read = None, node
        if node.op == "max":
            reads = [arg for arg in node.args if arg.op == "read"]
            floors = [arg for arg in node.args if arg.op == "const"]
            if len(reads) != 1 or len(floors) != 1 or len(node.args) != 2:
                return None
            read, low = reads[0], cast(int, floors[0].data)
        if read.kind != "int":
            raise Unsupported(f"the entries of {read.own[0].name}")
        indices = ", ".join(str(arg.data or arg.skeleton) for arg in read.args)
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
