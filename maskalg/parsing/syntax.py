"""The part of Python's syntax that expressions may use, and errors for the rest."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from typing import Any, Final

from . import messages

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
    """The syntax tree of a line, with errors of ours for what is no Python."""
    if not line:
        raise messages.unreadable(line, 1, "nothing is written there.")
    if len(line) > MOST_CHARACTERS:
        problem = f"{len(line)} characters, at most {MOST_CHARACTERS} are read."
        raise messages.unreadable(line, MOST_CHARACTERS, problem)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(line, mode="eval").body
    except SyntaxError as problem:
        # Python tells no place for an expression that stops too early.
        column = min(problem.offset or len(line) + 1, len(line) + 1)
        raise messages.unreadable(line, column, f"{problem.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as problem:
        reason = str(problem) or "nested too deeply"
        raise messages.unreadable(line, 1, f"{reason}.") from None
