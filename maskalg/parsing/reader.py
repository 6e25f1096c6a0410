"""`parse`: an expression from its text, over a white list of Python's syntax."""

from __future__ import annotations

import ast
import inspect
import operator
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch

from .. import errors
from ..formula.expression import Expression
from ..values.algebra import Bias, Mask, Score
from ..values.index import Index, TableExpression
from .budget import Budget
from .names import NAMES, described, methods_of
from .tensors import Listed, joined, listed, load, repeated, tensor_of

MOST_CHARACTERS: Final = 20_000

BINARY: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.MatMult: ("@", operator.matmul),
    ast.Pow: ("**", operator.pow),
}
UNARY: Final[dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]]] = {
    ast.Invert: ("~", operator.invert),
    ast.USub: ("-", operator.neg),
    ast.UAdd: ("+", operator.pos),
}
COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
FOREIGN: Final[dict[type[ast.AST], str]] = {
    ast.BoolOp: "`and` and `or` are no operations of masks: write `&` and `|`.",
    ast.Not: "`not` is no operation of masks: write `~`.",
    ast.IfExp: "`a if c else b` is no part of an expression: write where(c, a, b).",
    ast.Lambda: "functions are not written here: name one in a file, as file.py:name.",
    ast.Starred: "`*` before an argument is no part of an expression: write the list itself.",
}


def tree_of(line: str) -> ast.expr:
    """The syntax tree of a line; our own errors for invalid Python."""
    if not line:
        raise unreadable(line, 1, "nothing is written there.")
    if len(line) > MOST_CHARACTERS:
        problem = f"{len(line)} characters, at most {MOST_CHARACTERS} are read."
        raise unreadable(line, MOST_CHARACTERS, problem)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(line, mode="eval").body
    except SyntaxError as problem:
        # Python gives no place for an expression that ends too early.
        column = min(problem.offset or len(line) + 1, len(line) + 1)
        raise unreadable(line, column, f"{problem.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as problem:
        reason = str(problem) or "nested too deeply"
        raise unreadable(line, 1, f"{reason}.") from None


MOST_LEVELS: Final = 150
_MOST_POWER: Final = 64


def parse(text: str) -> Mask | Bias | Score:
    """The mask, bias or score that a text such as `causal & sliding(256) | prefix(4)` writes.

    The text is Python as one would write it after `from maskalg import *`, and nothing else: the
    public names of masks and biases, `q_idx kv_idx head batch scalar table where bias`, the real
    functions, numbers, `& | ^ ~ + - * / // % ** @`, comparisons, calls, `.at(…)`, `.shift(…)`,
    `.bind(…)` and constructors such as `document.from_lengths`. It is never evaluated by Python.

    Tensors: a list becomes one when it is passed (`[0, 0, 1]` int32, `[0.5]` float32, `[True]`
    Boolean; `[7] * 4` repeats). `lengths(100, 200)` are the ids of documents so long, `arange(n)`
    the positions, on which `//`, `%` and comparisons work entry by entry, and `load("ids.npy")`
    reads a file.

    Raises:
        ValueError: with the text, the column and the mistake.
    """
    if not isinstance(text, str):
        raise unreadable(str(text), 1, "expected a text.")
    line = text.replace("\n", " ").strip()
    tree, reader = tree_of(line), _Reader(line)
    with reader.budget:
        result = reader.value(tree, 0)
    if not isinstance(result, (Mask, Bias, Score)):
        hint = ""
        if isinstance(result, Index):
            hint = " Compare it, as in q_idx - kv_idx < 4, or add it to scores: bias(…)."
        elif callable(result):
            hint = f" Call it: {_usage(line, result)}."
        raise unreadable(line, 1, not_an_expression(described(result)) + hint)
    return result


class _Reader:
    """Computes the values of syntax trees; keeps their text for errors."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.budget = Budget()

    def wrong(self, node: ast.AST, problem: str) -> errors.MaskValueError:
        offset = getattr(node, "col_offset", 0)
        column = len(self.line.encode()[:offset].decode(errors="ignore")) + 1
        return unreadable(self.line, column, problem)

    def value(self, node: ast.expr, level: int) -> Any:
        if level > MOST_LEVELS:
            raise self.wrong(node, f"more than {MOST_LEVELS} operations lie in each other.")
        inner, node = level + 1, _without_package(node)
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name():
                return self._name(node)
            case ast.Tuple():
                return tuple(self.value(part, inner) for part in node.elts)
            case ast.List():
                parts = [self.value(part, inner) for part in node.elts]
                return self._guarded(node, listed, [parts], {})
            case ast.UnaryOp() if type(node.op) in UNARY:
                sign, apply = UNARY[type(node.op)]
                whole = node.operand.value if isinstance(node.operand, ast.Constant) else None
                if sign == "-" and type(whole) is int and whole == 2**63:
                    return -(2**63)
                operand = self.value(node.operand, inner)
                return self._applied(node, sign, apply, operand)
            case ast.BinOp() if type(node.op) in BINARY:
                sign, combine = BINARY[type(node.op)]
                left, right = self.value(node.left, inner), self.value(node.right, inner)
                if isinstance(left, Listed) or isinstance(right, Listed):
                    return self._lists(node, sign, left, right)
                return self._applied(node, sign, combine, left, right)
            case ast.Compare():
                return self._compared(node, inner)
            case ast.Subscript():
                return self._read(node, inner)
            case ast.Call():
                return self._called(node, inner)
            case ast.Attribute():
                raise self.wrong(node, f"`.{node.attr}` is no method that is called.")
        kind = type(node.op) if isinstance(node, (ast.BinOp, ast.UnaryOp)) else type(node)
        name = ast.unparse(node)[:40]
        raise self.wrong(node, FOREIGN.get(kind, f"`{name}` is no part of an expression."))

    def _constant(self, node: ast.Constant) -> object:
        value = node.value
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise self.wrong(node, f"{type(value).__name__} values are no part of an expression.")
        if isinstance(value, int) and value >= 2**63:
            raise self.wrong(node, "the number does not fit in 64 bits.")
        return value

    def _name(self, node: ast.Name) -> object:
        if node.id not in NAMES:
            hint = errors.near(node.id, NAMES) or OF_TENSORS
            raise self.wrong(node, f"no name {node.id!r} is known here.{hint}")
        return NAMES[node.id]

    def _applied(self, node: ast.expr, sign: str, apply: Callable[..., Any], *values: Any) -> Any:
        for value in values:
            if type(value) not in (Mask, Bias, Score, Index, int, float, torch.Tensor):
                hint = " Write its arguments, as in `sliding(256)`." if callable(value) else ""
                raise self.wrong(node, f"`{sign}` does not take {described(value)}.{hint}")
        numbers = all(type(value) in (int, float) for value in values)
        if numbers and sign in "&|^~@":
            raise self.wrong(node, f"`{sign}` does not take numbers.{_PARENTHESES}")
        if numbers and sign == "**" and not (0 <= values[1] <= _MOST_POWER):
            raise self.wrong(node, f"exponents of numbers are 0 to {_MOST_POWER} here.")
        try:
            result = apply(*values)
            self.budget.keep(result)
        except errors.MaskalgError as problem:
            raise self.wrong(node, str(problem)) from problem
        except TypeError:
            kinds = " and ".join(described(value) for value in values)
            hint = _PARENTHESES if sign in "&|^" else ""
            raise self.wrong(node, f"`{sign}` does not take {kinds}.{hint}") from None
        except Exception as problem:
            raise self.wrong(node, f"`{sign}`: {_first_line(problem)}") from None
        if isinstance(result, int) and abs(result) >= 2**63:
            raise self.wrong(node, "the result does not fit in 64 bits.")
        return result

    def _lists(self, node: ast.expr, sign: str, left: object, right: object) -> Listed:
        try:
            if sign == "*" and isinstance(left, Listed) and type(right) is int:
                return repeated(left, right)
            if sign == "*" and isinstance(right, Listed) and type(left) is int:
                return repeated(right, left)
            if sign == "+" and isinstance(left, Listed) and isinstance(right, Listed):
                return joined(left, right)
        except errors.MaskalgError as problem:
            raise self.wrong(node, str(problem)) from problem
        hint = "lists know `list * number` and `list + list` only."
        raise self.wrong(node, f"`{sign}` with a list: {hint}")

    def _compared(self, node: ast.Compare, level: int) -> Any:
        kind = type(node.ops[0])
        if kind not in COMPARISONS:
            text = ast.unparse(node)[:40]
            raise self.wrong(node, f"`{text}` is no part of an expression: `in` and `is` are not.")
        if len(node.ops) > 1:
            raise self.wrong(node, "comparisons in a row: write (a <= q_idx) & (q_idx < b).")
        left = self.value(node.left, level)
        right = self.value(node.comparators[0], level)
        if isinstance(left, Expression) or isinstance(right, Expression):
            raise self.wrong(node, f"masks are not compared.{_PARENTHESES}")
        sign, compare = COMPARISONS[kind]
        return self._applied(node, sign, compare, left, right)

    def _read(self, node: ast.Subscript, level: int) -> Any:
        table = self.value(node.value, level)
        if not isinstance(table, TableExpression):
            what = f"{described(table)} takes no `[…]`: write table([…])[kv_idx]."
            raise self.wrong(node, what)
        if any(isinstance(part, ast.Slice) for part in ast.walk(node.slice)):
            raise self.wrong(node, "slices are no part of an expression: give each index.")
        return self._guarded(node, table.__getitem__, [self.value(node.slice, level)], {})

    def _called(self, node: ast.Call, level: int) -> Any:
        function = self._function(node.func, level)
        arguments = [self._argument(part, level) for part in node.args]
        named = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.wrong(keyword, "`**` before an argument is no part of an expression.")
            named[keyword.arg] = self._argument(keyword.value, level)
        signature = inspect.signature(function)
        try:
            # Partly first: a misspelt name is reported before the arguments missing because of it.
            signature.bind_partial(*arguments, **named)
            signature.bind(*arguments, **named)
        except TypeError as problem:
            usage = _usage(ast.unparse(node.func), function)
            raise self.wrong(node, f"{problem}. Write {usage}.") from None
        return self._guarded(node, function, arguments, named)

    def _function(self, node: ast.expr, level: int) -> Callable[..., Any]:
        node = _without_package(node)
        if isinstance(node, ast.Name):
            found = self._name(node)
        elif isinstance(node, ast.Attribute):
            owner = self.value(node.value, level)
            known = methods_of(owner)
            if node.attr not in known:
                have = f" It has {', '.join(known)}." if known else ""
                raise self.wrong(node, f"{described(owner)} has no `.{node.attr}(…)`.{have}")
            found = getattr(owner, node.attr)
        else:
            raise self.wrong(node, "only names are called.")
        if isinstance(found, Expression) or not callable(found):
            raise self.wrong(node, f"{ast.unparse(node)} takes no arguments: leave out the `(…)`.")
        return found

    def _argument(self, node: ast.expr, level: int) -> Any:
        value = self.value(node, level)
        if isinstance(value, Listed):
            return self._guarded(node, tensor_of, [value], {})
        return value

    def _guarded(
        self,
        node: ast.expr,
        function: Callable[..., Any],
        arguments: list[Any],
        named: dict[str, Any],
    ) -> Any:
        """A call; all of its errors are reported with their place."""
        try:
            result = function(*arguments, **named)
            if function is load:
                self.budget.loaded(result)
            self.budget.keep(result)
            return result
        except errors.MaskalgError as problem:
            raise self.wrong(node, str(problem)) from problem
        except Exception as problem:
            call = ast.unparse(node)[:60]
            raise self.wrong(node, f"{call}: {_first_line(problem)}") from problem


_PARENTHESES: Final = " Comparisons need parentheses: (q_idx - kv_idx < 8) & causal."


def _without_package(node: ast.expr) -> ast.expr:
    """`causal` for `ma.causal` and `maskalg.causal`; any other part as it is."""
    match node:
        case ast.Attribute(value=ast.Name(id="ma" | "maskalg"), attr=name):
            return ast.copy_location(ast.Name(name), node)
    return node


def _usage(name: str, function: Callable[..., Any]) -> str:
    names = [
        f"{p.name}=…" if p.kind is p.KEYWORD_ONLY else p.name
        for p in inspect.signature(function).parameters.values()
    ]
    return f"{name}({', '.join(names)})"


def _first_line(problem: Exception) -> str:
    lines = str(problem).splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__


_AROUND = 32


OF_TENSORS = (
    " Tensors are written as lists, [0, 0, 1], or read by load('ids.npy'); what is in code is "
    "named as file.py:name."
)


def unreadable(text: str, column: int, problem: str) -> errors.MaskValueError:
    """`column` counts characters from 1."""
    return errors.MaskValueError(f"{_excerpt(text, column)} column {column}: {problem}")


def not_an_expression(what: str) -> str:
    return f"this is {what}, not a mask, a bias or a score."


def _excerpt(text: str, column: int) -> str:
    if len(text) <= 2 * _AROUND:
        return repr(text)
    first, last = max(0, column - 1 - _AROUND), column - 1 + _AROUND
    cut = text[first:last]
    return repr(("…" if first else "") + cut + ("…" if last < len(text) else ""))
