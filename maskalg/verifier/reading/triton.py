"""Triton functions as terms: their source is parsed as Python, and neither imported nor run.

Functions that hooks call (`maskalg_kernels`) are read from their source as well. Types of numbers
follow Triton's rules of promotion; integers wrap at their width. Where Triton computes a block of
elements, the reader computes one of them.
"""

from __future__ import annotations

import ast
import importlib.util
import operator
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from .. import terms
from ..meaning import NotDefined, rounded
from ..terms import Term
from .ptx import read_block
from .values import (
    BOOL,
    FLOAT32,
    INT32,
    INT64,
    TYPES,
    Block,
    Indexed,
    Number,
    Pointer,
    Type,
    converted,
    integer,
    promoted,
)

_DEEPEST: Final = 60  # calls within calls
Loops = Callable[["Reader", "ast.For | ast.While", dict[str, Any]], None]


@dataclass(frozen=True)
class Function:
    """A function and its module."""

    tree: ast.FunctionDef
    module: Module


@dataclass(frozen=True)
class Builtin:
    """A function of Triton's language."""

    name: str


class Module:
    """The functions and constants of a source text.

    Args:
        text: the source.
        name: the module's name in messages.
        library: sources of imported modules, by name, in place of the installed ones.
    """

    def __init__(self, text: str, name: str, library: dict[str, str] | None = None) -> None:
        self.name, self.lines = name, text.splitlines()
        self._library = library
        self._names: dict[str, Any] = {}
        for statement in ast.parse(text).body:
            self._declare(statement)

    def _declare(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.FunctionDef):
            self._names[statement.name] = Function(statement, self)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                language = alias.name == "language"  # of Gluon
                found = Builtin("") if language else (statement, alias.name)
                self._names[alias.asname or alias.name] = found
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                self._names[alias.asname or alias.name] = Builtin("")
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            self._names[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.ClassDef):
            fields = [part for part in statement.body if isinstance(part, ast.AnnAssign)]
            names = tuple([ast.unparse(field.target) for field in fields])
            self._names[statement.name] = Record(statement.name, names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def find(self, name: str) -> Any:
        """A function, a constant or a module of Triton by its name."""
        if name not in self._names:
            raise NotDefined(f"the name {name} in {self.name}")
        found = self._names[name]
        if isinstance(found, tuple):
            statement, original = found
            module = str(statement.module or "")
            if statement.level == 0 and not module.startswith("maskalg_kernels"):
                return Record(original)  # such as NamedTuple
            short = module.rsplit(".", 1)[-1]
            return kernel_module(short, self._library).find(original)
        if isinstance(found, ast.expr):
            return Reader(self).evaluated(found, {})
        return found


@dataclass(frozen=True)
class Record:
    """A class of named tuples."""

    name: str
    fields: tuple[str, ...] = ()

    def of(self, values: Sequence[Any]) -> Any:
        return namedtuple(self.name, self.fields)(*values) if self.fields else tuple(values)

    @staticmethod
    def made(**values: Any) -> Any:
        """A named tuple of any class."""
        return Record("Any", tuple(values)).of(list(values.values()))


def kernel_folder() -> Path:
    spec = importlib.util.find_spec("maskalg_kernels")
    if spec is None or not spec.submodule_search_locations:
        raise NotDefined("maskalg_kernels, which is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def kernel_source(name: str) -> str:
    return (kernel_folder() / f"{name}.py").read_text()


@lru_cache(maxsize=64)
def installed(name: str) -> Module:
    """A file of the installed kernels."""
    return Module(kernel_source(name), f"maskalg_kernels.{name}")


def kernel_module(name: str, library: dict[str, str] | None = None) -> Module:
    """A file of kernels, from `library` if it has one of that name."""
    if library and name in library:
        return Module(library[name], f"maskalg_kernels.{name}", library)
    return installed(name) if not library else Module(kernel_source(name), name, library)


class Reader:
    """Reads calls of a module's functions.

    Args:
        module: the functions that are called, and the names they use.
        summaries: functions that give a kernel function's result in place of its text, by name
            (`library.py`).
        loops: reads a loop of unknown length, given the reader, the statement and the names in
            scope, which it changes (`walk/loops.py`).
        branches: the context in which a branch is read, given the condition that holds in it.
    """

    def __init__(
        self,
        module: Module,
        summaries: Mapping[str, Callable[..., Any]] | None = None,
        loops: Loops | None = None,
        branches: Callable[[Term], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.module, self._loops, self._branches = module, loops, branches
        self._summaries = summaries or {}
        self._depth = 0

    def call(self, name: str, *args: Any) -> Any:
        """The result of a function of the module."""
        found = self.module.find(name)
        if not isinstance(found, Function):
            raise NotDefined(f"a function {name}")
        return self._called(found, args, {})

    def _called(self, function: Function, args: Sequence[Any], named: dict[str, Any]) -> Any:
        summary = self._summaries.get(function.tree.name)
        if summary is not None:
            return summary(*args, **named)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotDefined(f"{function.tree.name}, which calls itself")
        names = [argument.arg for argument in function.tree.args.args]
        scope = dict(zip(names, args, strict=False)) | named
        if set(scope) != set(names) or len(args) + len(named) != len(names):
            raise NotDefined(f"the arguments of {function.tree.name}")
        inner = type(self)(function.module, self._summaries, self._loops, self._branches)
        inner._depth = self._depth
        returned = inner.run(function.tree.body, scope)
        self._depth -= 1
        return returned[0] if returned is not None else None

    # --- statements ------------------------------------------------------------------------------

    def run(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> tuple[Any] | None:
        """Reads statements, which change the names in scope; the result, if one returns."""
        for statement in body:
            returned = self._statement(statement, scope)
            if returned is not None:
                return returned
        return None

    def run_through(self, body: Sequence[ast.stmt], scope: dict[str, Any], where: str) -> None:
        """Reads statements of which none may return."""
        if self.run(body, scope) is not None:
            raise NotDefined(f"a result within {where}")

    def _statement(self, statement: ast.stmt, scope: dict[str, Any]) -> tuple[Any] | None:
        if isinstance(statement, ast.Return):
            return (statement.value and self.evaluated(statement.value, scope),)
        if isinstance(statement, ast.Assign):
            value = self.evaluated(statement.value, scope)
            for target in statement.targets:
                self._assign(target, value, scope)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, self.evaluated(statement.value, scope), scope)
        elif isinstance(statement, ast.AugAssign):
            value = self._changed(
                statement.op,
                self.evaluated(statement.target, scope),
                self.evaluated(statement.value, scope),
            )
            self._assign(statement.target, value, scope)
        elif isinstance(statement, ast.If):
            return self._if(statement, scope)
        elif isinstance(statement, (ast.For, ast.While)) and not statement.orelse:
            items = self._counted(statement, scope)
            if items is None and self._loops is not None:
                self._loops(self, statement, scope)
            elif items is None:
                raise NotDefined(f"the loop {ast.unparse(statement).splitlines()[0]!r}")
            for item in items or ():
                self._assign(cast(ast.For, statement).target, item, scope)
                self.run_through(statement.body, scope, "an unrolled loop")
        elif not isinstance(statement, ast.Expr):
            raise NotDefined(f"the statement {ast.unparse(statement).splitlines()[0]!r}")
        return None

    def _counted(self, loop: ast.For | ast.While, scope: dict[str, Any]) -> Sequence[Any] | None:
        """The numbers that an unrolled loop runs over; None for other loops."""
        node = loop.iter if isinstance(loop, ast.For) else None
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".static_range"):
            ends = [self.evaluated(arg, scope) for arg in node.args]
            return None if any(isinstance(end, Number) for end in ends) else range(*ends)
        return None

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple):
            for inner, part in zip(target.elts, value, strict=True):
                self._assign(inner, part, scope)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            changed, index = scope[target.value.id], self.evaluated(target.slice, scope)
            if not isinstance(changed, Indexed):
                raise NotDefined(f"an assignment to {ast.unparse(target)}")
            scope[target.value.id] = changed.put(as_number(index).term, as_number(value))
        else:
            raise NotDefined(f"an assignment to {ast.unparse(target)}")

    def _if(self, statement: ast.If, scope: dict[str, Any]) -> tuple[Any] | None:
        chosen = self.evaluated(statement.test, scope)
        if not isinstance(chosen, Number):
            return self.run(statement.body if chosen else statement.orelse, scope)
        condition = chosen.as_condition
        branches = []
        for body, holds in ((statement.body, condition), (statement.orelse, ~condition)):
            inner_scope = dict(scope)
            with self._branches(holds) if self._branches else nullcontext():
                self.run_through(body, inner_scope, "a branch")
            branches.append(inner_scope)
        then, otherwise = branches
        for name in then.keys() & otherwise.keys():
            if then[name] is not scope.get(name) or otherwise[name] is not scope.get(name):
                scope[name] = _either(condition, then[name], otherwise[name])
        return None

    # --- expressions -----------------------------------------------------------------------------

    def evaluated(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return scope[node.id] if node.id in scope else self.module.find(node.id)
        if isinstance(node, ast.Tuple):
            return tuple([self.evaluated(part, scope) for part in node.elts])
        if isinstance(node, ast.List):
            return [self.evaluated(part, scope) for part in node.elts]
        if isinstance(node, ast.Starred):
            raise NotDefined("a list of arguments")
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.BinOp):
            left, right = (self.evaluated(part, scope) for part in (node.left, node.right))
            return self._operation(node.op, left, right)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node.op, self.evaluated(node.operand, scope))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left = self.evaluated(node.left, scope)
            return self._compared(node.ops[0], left, self.evaluated(node.comparators[0], scope))
        if isinstance(node, ast.BoolOp):
            return self._joined(node.op, [self.evaluated(part, scope) for part in node.values])
        if isinstance(node, ast.IfExp):
            chosen = self.evaluated(node.test, scope)
            if not isinstance(chosen, Number):
                return self.evaluated(node.body if chosen else node.orelse, scope)
            parts = [self.evaluated(part, scope) for part in (node.body, node.orelse)]
            return self._chosen(chosen, *parts)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        raise NotDefined(f"the expression {ast.unparse(node)!r}")

    def _subscript(self, node: ast.Subscript, scope: dict[str, Any]) -> Any:
        value = self.evaluated(node.value, scope)
        if isinstance(value, Number):  # [:, None] adds an axis
            added = self._summaries.get("[]")
            return added(value, ast.unparse(node.slice)) if added else value
        index = self.evaluated(node.slice, scope)
        if isinstance(value, Indexed):
            return value.at(as_number(index).term)
        if not isinstance(value, tuple) or not isinstance(index, int):
            raise NotDefined(f"{ast.unparse(node)!r}")
        if not -len(value) <= index < len(value):
            raise NotDefined(f"{ast.unparse(node)!r}, of {len(value)} entries")
        return value[index]

    def _attribute(self, node: ast.Attribute, scope: dict[str, Any]) -> Any:
        value = self.evaluated(node.value, scope)
        if isinstance(value, Builtin):
            name = f"{value.name}.{node.attr}".lstrip(".").removeprefix("language.")
            return TYPES.get(node.attr, Builtin(name.removeprefix("math.")))
        if isinstance(value, Block) and node.attr == "shape":
            return value.shape
        if isinstance(value, Number) and node.attr == "dtype":
            return value.type
        if isinstance(value, tuple) and node.attr in getattr(value, "_fields", ()):
            return getattr(value, node.attr)
        if isinstance(value, Type) and node.attr == "primitive_bitwidth":
            return value.bits
        raise NotDefined(f"{ast.unparse(node)!r}")

    def _unary(self, op: ast.unaryop, value: Any) -> Any:
        if not isinstance(value, Number):
            return _OF_ONE[type(op)](value)
        if isinstance(op, ast.Invert):
            if value.type.kind == "bool":
                return Number(~value.term, BOOL)
            return integer(-1 - value.term, value.type)
        if isinstance(op, ast.USub):
            if value.type.kind == "float":
                return Number(terms.apply("negative", value.term), value.type)
            if value.type.kind == "int":
                return integer(-value.term, value.type)
        raise NotDefined(f"{type(op).__name__} of {value.type}")

    def _operation(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return _moved(op, left, right)
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(op, ast.Add):
            return left + right
        if not isinstance(left, Number) and not isinstance(right, Number):
            try:
                return _PYTHON[type(op)](left, right)
            except TypeError as problem:
                raise NotDefined(str(problem)) from problem
        x, y = alike(left, right)
        if x.type.kind == "float":
            name = REALS.get(type(op))
            if name is None or isinstance(op, ast.Pow):
                raise NotDefined(f"{type(op).__name__} of real numbers")
            name = "divide quickly" if isinstance(op, ast.Div) else name
            return Number(terms.apply(name, x.term, y.term), x.type)
        if x.type.kind == "bool":
            return of_conditions(op, x, y)
        if isinstance(op, (ast.LShift, ast.RShift)) and not terms.is_number(y.term):
            # Proofs of the walk may know 2**y; to all others it is an unknown.
            times = power_of_two(y.term)
            if isinstance(op, ast.LShift):
                return integer(x.term * times, x.type)
            return Number(x.term // times, x.type)
        return of_integers(op, x, y)

    def _changed(self, op: ast.operator, old: Any, value: Any) -> Any:
        """A variable's new value in a statement such as `x += y`."""
        return self._operation(op, old, value)

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        return compared(op, left, right)

    def _chosen(self, chosen: Number, then: Any, otherwise: Any) -> Any:
        raise NotDefined("a choice of Python by a number of the kernel")

    def _joined(self, op: ast.boolop, values: list[Any]) -> Any:
        raise NotDefined("`and` or `or` of numbers of the kernel")

    # --- calls -----------------------------------------------------------------------------------

    @property
    def builtins(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of the language, by name."""
        return _BUILTINS

    def _call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args += self.evaluated(arg.value, scope)
            else:
                args.append(self.evaluated(arg, scope))
        named = {k.arg: self.evaluated(k.value, scope) for k in node.keywords if k.arg is not None}
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return _to(self.evaluated(node.func.value, scope), *args, **named)
        function: Any = (
            Builtin(node.func.id)
            if isinstance(node.func, ast.Name)
            and node.func.id not in scope
            and node.func.id not in self.module
            else self.evaluated(node.func, scope)
        )
        if isinstance(function, Function):
            return self._called(function, args, named)
        if callable(function):
            return function(*args, **named)
        if isinstance(function, Record):
            given = dict(zip(function.fields, args, strict=False)) | named
            return function.of([given[name] for name in function.fields] if given else args)
        if isinstance(function, Builtin):
            known = self._summaries.get(function.name) or self.builtins.get(function.name)
            if known is None and function.name == "load":
                known = self._load
            if known is not None:
                return known(*args, **named)
            raise NotDefined(f"the function {function.name} of Triton")
        raise NotDefined(f"a call of {ast.unparse(node.func)}")

    def _load(self, pointer: Any, mask: Any = None, other: Any = None) -> Number:
        if not isinstance(pointer, Pointer):
            raise NotDefined("a load that is of no table")
        # Addresses count modulo 2**64, so the sum needs no wrapping at earlier steps.
        at = terms.unwrapped_ring(pointer.at, 64)
        inside = terms.TRUE if mask is None else as_number(mask).as_condition
        found = Number(terms.entry(pointer.table, at), pointer.entries)
        if mask is None:
            return found
        beyond = converted(as_number(0 if other is None else other), pointer.entries)
        return Number(terms.choice(inside, found.term, beyond.term), pointer.entries)


# --- operations ----------------------------------------------------------------------------------

_PYTHON: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift,
    ast.Div: operator.truediv, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.RShift: operator.rshift,
}  # fmt: skip
_OF_ONE: Final[dict[type, Callable[[Any], Any]]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Not: operator.not_,
}  # fmt: skip
REALS: Final[dict[type, str]] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.Pow: "power",
}  # fmt: skip
"""Operations on real numbers; Triton divides less exactly, and has no powers."""


def as_number(value: Any) -> Number:
    """A value as a `Number`. A Python number has the type that Triton gives it by itself."""
    if isinstance(value, Number):
        return value
    if isinstance(value, bool):
        return Number(terms.truth(value), BOOL)
    if isinstance(value, int):
        for of in (INT32, TYPES["uint32"], INT64):
            if of.ends[0] <= value <= of.ends[1]:
                return Number(terms.number(value), of)
    if isinstance(value, float):
        return Number(terms.real(rounded(value)), FLOAT32)
    raise NotDefined(f"{value!r} as a number")


def address(value: Any) -> Number:
    """A pointer as its address, an integer of 64 bits; any other value as a `Number`."""
    return value.address if isinstance(value, Pointer) else as_number(value)


def alike(left: Any, right: Any) -> tuple[Number, Number]:
    """Two operands in one type; a literal takes the type of the other operand."""
    written = [not isinstance(value, Number) for value in (left, right)]
    x, y = as_number(left), as_number(right)
    to = promoted(x.type, y.type)
    rank = {"bool": 0, "int": 1, "float": 2}
    if written == [True, False] and rank[x.type.kind] <= rank[y.type.kind]:
        to = y.type
    if written == [False, True] and rank[y.type.kind] <= rank[x.type.kind]:
        to = x.type
    for value, given in zip((left, right), written, strict=True):
        if given and isinstance(value, int) and to.kind == "int":
            low, high = to.ends
            if not low <= value <= high:
                raise NotDefined(f"{value}, which {to} does not hold")
    return _literal(left, x, to), _literal(right, y, to)


def _literal(given: Any, value: Number, to: Type) -> Number:
    if not isinstance(given, Number) and to.kind == "float" and not isinstance(given, bool):
        return Number(terms.real(rounded(float(given))), to)
    return converted(value, to)


Rule = Callable[[Term, Term], Term]
_OF_CONDITIONS: Final[dict[type, Rule]] = {
    ast.BitAnd: terms.both, ast.BitOr: terms.either,
    ast.BitXor: lambda x, y: ~terms.same(x, y),
}  # fmt: skip
WRAPPING: Final[dict[type, Rule]] = {
    ast.Add: terms.add, ast.Sub: operator.sub, ast.Mult: terms.multiply,
}  # fmt: skip
_WITHIN: Final[dict[type, Rule]] = {
    ast.FloorDiv: terms.truncated_quotient, ast.Mod: terms.truncated_remainder,
    ast.BitAnd: terms.OF_INTEGERS["bitand"], ast.BitOr: terms.OF_INTEGERS["bitor"],
    ast.BitXor: terms.OF_INTEGERS["bitxor"],
}  # fmt: skip


def of_conditions(op: ast.operator, x: Number, y: Number) -> Number:
    rule = _OF_CONDITIONS.get(type(op))
    if rule is None:
        raise NotDefined(f"{type(op).__name__} of conditions")
    return Number(rule(x.term, y.term), BOOL)


def of_integers(op: ast.operator, x: Number, y: Number) -> Number:
    """An operation on integers of one type."""
    of = x.type
    if type(op) in WRAPPING:
        return integer(WRAPPING[type(op)](x.term, y.term), of)
    if type(op) in _WITHIN:
        return Number(_WITHIN[type(op)](x.term, y.term), of)
    if isinstance(op, (ast.RShift, ast.LShift)) and terms.is_number(y.term):
        by = terms.value_of_number(y.term)
        if not 0 <= by < of.bits:
            raise NotDefined(f"a shift of {of.bits} bits by {by}")
        if isinstance(op, ast.LShift):
            return integer(x.term * (1 << by), of)
        if of.signed and by == of.bits - 1:
            return Number(terms.sign_of(x.term), of)
        return Number(x.term // (1 << by), of)
    raise NotDefined(f"{type(op).__name__} of integers")


def power_of_two(exponent: Term) -> Term:
    """2 to the power of an exponent that is unknown to the provers."""
    return terms.apply("power of two", exponent, sort="int")


_SIGNS: Final[dict[type, tuple[str, Callable[[Term, Term], Term]]]] = {
    ast.GtE: ("greater or equal", operator.ge), ast.Gt: ("greater", operator.gt),
    ast.LtE: ("greater or equal", operator.le), ast.Lt: ("greater", operator.lt),
    ast.Eq: ("equal", terms.equal), ast.NotEq: ("equal", lambda x, y: ~terms.equal(x, y)),
}  # fmt: skip
_OF_PYTHON: Final[dict[type, Callable[[Any, Any], bool]]] = {
    ast.GtE: operator.ge, ast.Gt: operator.gt, ast.LtE: operator.le, ast.Lt: operator.lt,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


def compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    """A comparison. If both sides are Python numbers, Python computes it."""
    if isinstance(op, (ast.Is, ast.IsNot)) or not (
        isinstance(left, Number) or isinstance(right, Number)
    ):
        return _OF_PYTHON[type(op)](left, right)
    x, y = alike(left, right)
    name, compare = _SIGNS[type(op)]
    if x.type.kind == "float":
        ordered = (y.term, x.term) if isinstance(op, (ast.Lt, ast.LtE)) else (x.term, y.term)
        found = terms.apply(name, *ordered, sort="bool")
        return Number(~found if isinstance(op, ast.NotEq) else found, BOOL)
    if x.type.kind == "bool":
        equal = terms.same(x.term, y.term)
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return Number(equal if isinstance(op, ast.Eq) else ~equal, BOOL)
        x, y = converted(x, INT32), converted(y, INT32)
    return Number(compare(x.term, y.term), BOOL)


def _either(condition: Term, then: Any, otherwise: Any) -> Any:
    """The value of a name after an `if` with two branches."""
    if isinstance(then, tuple) and isinstance(otherwise, tuple) and len(then) == len(otherwise):
        pairs = zip(then, otherwise, strict=True)
        return tuple([_either(condition, one, other) for one, other in pairs])
    if then is otherwise:
        return then
    if isinstance(then, Indexed) and isinstance(otherwise, Indexed):
        return then.chosen(condition, otherwise)
    x, y = alike(then, otherwise)
    return Number(terms.choice(condition, x.term, y.term), x.type)


def _moved(op: ast.operator, left: Any, right: Any) -> Pointer:
    """A pointer plus or minus an offset."""
    swaps = isinstance(op, ast.Add) and not isinstance(left, Pointer)
    pointer, offset = (right, left) if swaps else (left, right)
    if not isinstance(op, (ast.Add, ast.Sub)) or isinstance(offset, Pointer):
        raise NotDefined(f"{type(op).__name__} of pointers")
    if not isinstance(pointer, Pointer):
        raise NotDefined("an integer less a pointer")
    by = as_number(offset)
    if by.type.kind != "int":
        raise NotDefined(f"a pointer moved by {by.type}")
    if isinstance(op, ast.Sub):
        by = integer(-by.term, by.type)
    return Pointer(pointer.table, pointer.entries, pointer.at + by.term)


def _to(value: Any, to: Type, bitcast: bool = False) -> Number:
    found = address(value) if to == INT64 and not bitcast else as_number(value)
    if not bitcast:
        if found.type.kind == "float" and to.kind == "int":
            return Number(_truncated(found, to), to)
        return converted(found, to)
    if to.bits != found.type.bits:
        raise NotDefined("bits of another width")
    if to.kind == "float" and found.type.kind == "int":
        return Number(terms.of_bits(found.term), to)
    if to.kind == found.type.kind == "int":
        return integer(found.term, to)
    raise NotDefined(f"the bits of {found.type} as {to}")


def _truncated(value: Number, to: Type) -> Term:
    """A real number as an integer; it must be a result of the kernels' `whole`, which clamps."""
    part = value.term
    if part.op == "apply" and part.data == "cut to 32 bits" and to.bits >= 32:
        return terms.whole_part(part.args[0])
    raise NotDefined("a real number that may be past an integer's width")


def _where(condition: Any, then: Any, otherwise: Any) -> Number:
    x, y = alike(then, otherwise)
    return Number(terms.choice(as_number(condition).as_condition, x.term, y.term), x.type)


def extreme(name: str, x: Number, y: Number, of: str = "") -> Number:
    """The "minimum" or "maximum" of two numbers of one type; `of` follows the name for reals."""
    if x.type.kind == "float":
        return Number(terms.apply(name + of, x.term, y.term), x.type)
    of_integers = terms.least if name == "minimum" else terms.most
    return Number(of_integers(x.term, y.term), x.type)


def _extreme(name: str) -> Callable[..., Number]:
    def rule(left: Any, right: Any, propagate_nan: Any = None) -> Number:
        kept = propagate_nan == Builtin("PropagateNan.ALL")
        x, y = alike(as_number(left), as_number(right))
        return extreme(name, x, y, "" if kept else " of numbers")

    return rule


def _of_one(name: str) -> Callable[[Any], Number]:
    def rule(x: Any) -> Number:
        value = as_number(x)
        if value.type.kind != "float":
            if name == "abs":
                size = terms.most(value.term, -value.term)
                return integer(size, value.type)
            raise NotDefined(f"{name} of an integer")
        return Number(terms.apply(name, value.term), value.type)

    return rule


def _assembly(
    assembly: str,
    constraints: str,
    operands: list[Any],
    dtype: Type,
    is_pure: bool,
    pack: int,
) -> Number:
    if dtype != FLOAT32 or pack != 1 or not is_pure:
        raise NotDefined("assembly for several elements, or with a result of another type")
    return read_block(assembly, constraints, [as_number(operand) for operand in operands])


def _high_product(left: Any, right: Any) -> Number:
    """The upper 32 of the 64 bits of a product."""
    x, y = as_number(left), as_number(right)
    if {x.type, y.type} != {TYPES["uint32"]}:
        raise NotDefined(f"the upper bits of {x.type} by {y.type}")
    product = x.term * y.term
    return Number(product // (1 << 32), x.type)


def of_reals(name: str) -> Callable[..., Number]:
    """A function of real numbers by its name."""
    return lambda *args: Number(terms.apply(name, *[as_number(arg).term for arg in args]), FLOAT32)


_BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "float": float,
    "len": len,
    "tuple": lambda *parts: parts,
    "constexpr": lambda value: value,
    "full": lambda shape, value, type: converted(as_number(value), type),
    "where": _where,
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "cast": _to,
    "umulhi": _high_product,
    "inline_asm_elementwise": _assembly,
    "div_rn": of_reals("divide"),
    "fma": of_reals("fma"),
    "sqrt_rn": of_reals("sqrt"),
    **{name: _of_one(name) for name in ("abs", "floor", "ceil", "exp", "exp2", "log", "log2")},
    **{name: _of_one(name) for name in ("sin", "cos", "erf")},
    "sqrt": of_reals("sqrt quickly"),
}
