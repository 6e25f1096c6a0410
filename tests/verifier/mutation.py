"""Wrong texts made of right ones, one change at a time, by rules and not by hand.

Triton is changed in its syntax tree, PTX by instruction, C++ by token. The rules are what slips
into a printer: off by one, `<` for `<=`, `+` for `-`, a bound or a condition that is left out, the
query for the key, 32 for 64 bits, with a sign for without, one argument for the next; and what the
host passes: the size of another axis, another number or table, the factor of another divisor.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from maskalg.codegen.arguments import (
    BitsNumber,
    BitsTable,
    DivisorArgument,
    ScalarArgument,
    TableArgument,
)
from maskalg.codegen.hooks import Hooks
from maskalg.formula import nodes


@dataclass(frozen=True)
class Mutant:
    """A text with one change: by which rule, in which function, from what to what."""

    rule: str
    function: str
    before: str
    after: str
    write: Callable[[], str]
    passed: Hooks | None = None  # with other arguments, where these are changed and not the text

    @cached_property
    def text(self) -> str:
        return self.write()


# --- Triton --------------------------------------------------------------------------------------

_COMPARED = {
    ast.GtE: (ast.Gt, ast.LtE), ast.Gt: (ast.GtE, ast.Lt), ast.LtE: (ast.Lt, ast.GtE),
    ast.Lt: (ast.LtE, ast.Gt), ast.Eq: (ast.NotEq, ast.GtE), ast.NotEq: (ast.Eq,),
}  # fmt: skip
_OPERATIONS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv,
}  # fmt: skip
_NAMES = {"q_idx": "kv_idx", "kv_idx": "q_idx", "q0": "q1", "q1": "q0", "head": "batch"}
_FUNCTIONS = {
    "tl.minimum": "tl.maximum", "tl.maximum": "tl.minimum", "floor_div": "floor_mod",
    "floor_mod": "floor_div", "quotient_of_any": "quotient", "remainder_of_any": "remainder",
    "long_add": "long_multiply", "long_minimum": "long_maximum", "long_maximum": "long_minimum",
    "long_at_least": "long_equal", "long_floor_div": "long_floor_mod",
}  # fmt: skip


def of_triton(source: str) -> Iterator[Mutant]:
    """Each mutant of the functions of a module."""
    tree = ast.parse(source)
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        parts = [part for line in function.body for part in ast.walk(line)]
        for part in parts:
            for rule, new in _changes(part):
                texts = ast.unparse(part), ast.unparse(new)
                yield Mutant(rule, function.name, *texts, partial(_written, tree, part, new))


def _written(tree: ast.Module, old: ast.AST, new: ast.AST) -> str:
    changed = _Put(old, new).visit(copy.deepcopy(tree, {id(old): old}))
    return ast.unparse(ast.fix_missing_locations(changed))


class _Put(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare):
        for other in _COMPARED.get(type(node.ops[0]), ()):
            yield "comparison", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BinOp):
        other = _OPERATIONS.get(type(node.op))
        if other is not None:
            yield "operation", ast.BinOp(node.left, other(), node.right)
            yield "left out", node.left
            yield "left out", node.right
    elif isinstance(node, ast.UnaryOp):
        yield "sign", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "condition", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "off by one", ast.Constant(node.value + 1)
        yield "off by one", ast.Constant(node.value - 1)
    elif isinstance(node, ast.Constant) and "setp" in str(node.value):
        yield from ((rule, ast.Constant(text)) for rule, text in of_ptx(node.value))
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield "index", ast.Name(_NAMES[node.id])
    elif isinstance(node, ast.Call):
        yield from _changed_calls(node)


def _changed_calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name, args = ast.unparse(node.func), node.args
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        yield "width", node.func.value
    if name in _FUNCTIONS:
        function = ast.parse(_FUNCTIONS[name], mode="eval").body
        kept = args[:1] + args[2:] if name == "remainder" else args
        yield "function", ast.Call(function, kept, node.keywords)
    if name in ("tl.minimum", "tl.maximum", "long_minimum", "long_maximum"):
        yield "clamp left out", args[0]
        yield "clamp left out", args[1]
    if name == "tl.where":
        yield "branches", ast.Call(node.func, [args[0], args[2], args[1]], node.keywords)
    if name == "inside":
        less = ast.BinOp(args[1], ast.Sub(), ast.Constant(1))
        yield "off by one", ast.Call(node.func, [args[0], less], [])
    if name in ("floor_div", "floor_mod"):
        op = ast.FloorDiv() if name == "floor_div" else ast.Mod()
        yield "rounded to zero", ast.BinOp(args[0], op, args[1])
    if len(args) == 2 and name not in ("tl.minimum", "tl.maximum", "inside"):
        yield "arguments", ast.Call(node.func, args[::-1], node.keywords)
    if name == "tiles":
        yield "arguments", ast.Call(node.func, [args[1], args[0], *args[2:]], [])


# --- what the host passes -------------------------------------------------------------------------


def of_arguments(hooks: Hooks) -> Iterator[Mutant]:
    """Each mutant of the numbers and tables that hooks are passed."""
    for kind, of in (("S", "scalars"), ("T", "tables")):
        every = list(getattr(hooks, of))
        for place, argument in enumerate(every):
            for rule, new in _passed_otherwise(argument, every):
                other = replace(hooks, **{of: type(getattr(hooks, of))(
                    [*every[:place], new, *every[place + 1 :]])})  # fmt: skip
                for function in _readers(hooks.source, f"{kind}[{place}]"):
                    yield Mutant(rule, function, str(argument), str(new),
                                 partial(str, hooks.source), other)  # fmt: skip


def _passed_otherwise(argument: Any, every: list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(argument, ScalarArgument):
        if argument.axis is not None:
            yield "size passed", replace(argument, axis=1 - argument.axis)
        for other in every:
            if isinstance(other, ScalarArgument) and other.slot != argument.slot:
                yield "number passed", replace(argument, slot=other.slot)
    if isinstance(argument, DivisorArgument):
        part = "shift" if argument.part == "factor" else "factor"
        yield "factor passed", replace(argument, part=part)
        for by in (1, -1):
            divisor = nodes.add(argument.divisor, nodes.const(by))
            yield "factor passed", replace(argument, divisor=divisor)
    if isinstance(argument, BitsNumber):
        for other in every:
            if isinstance(other, BitsNumber) and other != argument:
                yield "number of bits passed", other
    if isinstance(argument, BitsTable):
        for other in every:
            if isinstance(other, BitsTable) and other != argument:
                yield "bits passed", other
    if isinstance(argument, TableArgument) and argument.step is None:
        for other in every:
            if isinstance(other, TableArgument) and other.step is None and other != argument:
                yield "table passed", other


def _readers(source: str, name: str) -> list[str]:
    """The hooks that read an argument: those of elements and of runs."""
    tree = ast.parse(source)
    found = [part.name for part in tree.body
             if isinstance(part, ast.FunctionDef) and name in ast.unparse(part)]  # fmt: skip
    held = {"hold": "masked", "hold_of_keys": "masked_of_keys"}
    return list(dict.fromkeys(held.get(name, name) for name in found))[:1]


# --- PTX -----------------------------------------------------------------------------------------

_SIGNS = {"lt": ("le", "gt"), "le": ("lt", "ge"), "gt": ("ge", "lt"), "ge": ("gt", "le"),
          "eq": ("ne", "ge"), "ne": ("eq",)}  # fmt: skip
_WORDS = {".u32": ".s32", ".s32": ".u32", ".and.": ".or.", ".or.": ".and.", "and.pred": "or.pred",
          "or.pred": "and.pred", "sub.s32": "add.s32", "add.s32": "sub.s32"}  # fmt: skip


def of_ptx(block: str) -> Iterator[tuple[str, str]]:
    """Each change of a block of assembly, with its rule."""
    statements = block.split(";")
    for at, statement in enumerate(statements):
        for rule, changed in _instructions(statement):
            yield rule, ";".join([*statements[:at], changed, *statements[at + 1 :]])


def _instructions(statement: str) -> Iterator[tuple[str, str]]:
    if ".reg" in statement and ", " not in statement and "setp" not in statement:
        return
    for sign, others in _SIGNS.items():
        if f"setp.{sign}." in statement:
            for other in others:
                yield "comparison", statement.replace(f"setp.{sign}.", f"setp.{other}.")
    for word, other in _WORDS.items():
        if word in statement and ".reg" not in statement:
            rule = "width" if word in (".u32", ".s32") and "setp" in statement else "operation"
            if rule == "operation" or "setp" in statement:
                yield rule, statement.replace(word, other)
    operands = statement.split(", ")
    if len(operands) > 2 and ".reg" not in statement:
        first, second = operands[1:3]
        yield "arguments", ", ".join([operands[0], second, first, *operands[3:]])
    for found in re.finditer(r"(?<=, )(\$?)(\d+)\b", statement):
        for by in (1, -1):
            number = f"{found[1]}{int(found[2]) + by}"
            yield "off by one", statement[: found.start()] + number + statement[found.end() :]


# --- C++ -----------------------------------------------------------------------------------------

_TOKENS: tuple[tuple[str, str, Callable[[re.Match[str]], list[str]]], ...] = (
    ("comparison", r" (>=|<=|==|>|<) ", lambda m: {
        ">=": [" > ", " <= "], "<=": [" < ", " >= "], ">": [" >= ", " < "], "<": [" <= ", " > "],
        "==": [" != ", " >= "]}[m[1]]),
    ("operation", r" ([-+*&|]) ", lambda m: [
        {"+": " - ", "-": " + ", "*": " + ", "&": " | ", "|": " & "}[m[1]]]),
    ("off by one", r"\(I\)(-?\d+)LL", lambda m: [
        f"(I){int(m[1]) + 1}LL", f"(I){int(m[1]) - 1}LL"]),
    ("index", r"\b(q_idx|kv_idx|q0|q1|head)\b", lambda m: [_NAMES[m[1]]]),
    ("function", r"\b(least|most|quotient|remainder)\(", lambda m: [
        {"least": "most(", "most": "least(", "quotient": "remainder(",
         "remainder": "quotient("}[m[1]]]),
    ("branches", r" \? (.+) : (.+);", lambda m: [f" ? {m[2]} : {m[1]};"]),
    ("sign", r"!(?=\w)", lambda m: [""]),
    ("width", r"^( *const )I (?=t\d+ = )", lambda m: [f"{m[1]}int32_t "]),
    ("clamp left out", r"(?:least|most)\((.+)\);", lambda m: [
        f"{part};" for part in _arguments(m[1])]),
)  # fmt: skip


def of_cpp(source: str) -> Iterator[Mutant]:
    """Each mutant of the functions behind the prelude."""
    start = source.index('extern "C"')
    lines = source.splitlines()
    first = source[:start].count("\n")
    function = ""
    for at in range(first, len(lines)):
        line = lines[at]
        named = re.match(r'extern "C" void (\w+)', line)
        function = named[1] if named else function
        if not re.match(r" +(const (I|bool) t\d+ = |found\[|s\[at\])", line):
            continue
        for rule, pattern, changes in _TOKENS:
            for found in re.finditer(pattern, line):
                for new in changes(found):
                    changed = line[: found.start()] + new + line[found.end() :]
                    every = [*lines[:at], changed, *lines[at + 1 :], ""]
                    write = partial("\n".join, every)
                    yield Mutant(rule, function, line.strip(), changed.strip(), write)


def _arguments(text: str) -> list[str]:
    """The arguments of a call, of which there are two."""
    depth = 0
    for at, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            return [text[:at], text[at + 2 :]]
    return []
