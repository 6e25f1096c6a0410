"""Monotone integer functions and their exact inverses.

Each function f here satisfies, over the integers,

    f(x) >= n  <=>  x >= lower(n)        f(x) <= n  <=>  x <= upper(n)

which is what lets a quantifier be eliminated without losing a single position.

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
    """`sp.expand`, which takes a hundred microseconds even where there is nothing to expand."""
    for term in sp.Add.make_args(expression):
        for factor in sp.Mul.make_args(term):
            if factor.is_Add or factor.is_Pow:
                return sp.expand(expression)
    return expression


def holds(expression: Any, symbol: Any) -> bool:
    """Whether the symbol stands in the expression; SymPy's `has` takes ten times as long."""
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
    """A function of one index that is not known to be monotone: `Entry(name, q)`."""

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
    raise NotImplementedError(f"no inverse of {function.func}: add it to proof/functions.py")


def upper(function: Any, n: Any) -> tuple[Any, Any]:
    """(x, bound) such that function <= n  <=>  x <= bound."""
    if isinstance(function, FloorDiv):
        x, c = function.args
        return x, c * n + c - 1
    if isinstance(function, Step):
        if function.table in _ASCENDING:
            return function.position, function.partner(n)
        return function.position, function.partner(n + 1) - 1
    raise NotImplementedError(f"no inverse of {function.func}: add it to proof/functions.py")


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
