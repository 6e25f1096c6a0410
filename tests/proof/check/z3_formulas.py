"""z3 as an oracle of proofs: formulas as terms of its integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from maskalg.formula import nodes
from maskalg.formula.nodes import Node
from maskalg.proof.closed_forms import Span


class Z3:
    """Formulas in z3's integers, for all values of the parameters within their bounds.

    Divisors are positive, where z3 divides as Python does.
    """

    def __init__(self) -> None:
        self.z3 = pytest.importorskip("z3")
        self.given: list[Any] = []
        self._names: dict[str, Any] = {}

    def of(self, node: Node) -> Any:
        z3, op = self.z3, node.op
        args = [self.of(arg) for arg in node.args] if op != "read" else []
        if op == "const":
            return z3.BoolVal(node.data) if node.kind == "bool" else z3.IntVal(node.data)
        if op in ("index", "scalar", "read"):
            known = node.canonical in self._names
            symbol = self._names.setdefault(node.canonical, z3.Int(f"x{len(self._names)}"))
            if not known and op == "scalar" and node.own[0].low is not None:
                self.given.append(symbol >= node.own[0].low)
            return symbol
        rules: dict[str, Callable[..., Any]] = {
            "add": lambda *a: z3.Sum(*a),
            "mul": lambda *a: z3.Product(*a),
            "floordiv": lambda x, c: x / c,
            "mod": lambda x, c: x % c,
            "max": lambda *a: reduce(lambda x, y: z3.If(x >= y, x, y), a),
            "min": lambda *a: reduce(lambda x, y: z3.If(x <= y, x, y), a),
            "where": z3.If,
            "ge": lambda a, b: a >= b,
            "eq": lambda a, b: a == b,
            "and": z3.And,
            "or": z3.Or,
            "not": z3.Not,
        }
        return rules[op](*args)

    def holds(self, span: Span) -> Any:
        k = self.of(nodes.K)
        parts = [k >= self.of(low) for low in span.lows]
        parts += [k <= self.of(high) for high in span.highs]
        parts += [self.of(guard) >= 0 for guard in span.guards]
        return self.z3.And(*parts)

    def answer(self, *conditions: Any, milliseconds: int = 20_000) -> str:
        solver = self.z3.Solver()
        solver.set("timeout", milliseconds)
        solver.add(*conditions, *self.given)
        return str(solver.check())
