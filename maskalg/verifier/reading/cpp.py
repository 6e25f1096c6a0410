"""C++ as terms: functions of integers, and hooks that visit all pairs of a block in loops.

The text is read as Python (`braces.py`), with C++'s rules of types. For a hook, the reader computes
the result of one pair: each loop takes one turn, the one of the pair.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final

from ...backends.cpu.native.text import PRELUDE
from .. import terms
from ..meaning import NotDefined, rounded
from ..terms import Table, Term
from .braces import CPP_TYPES, python_of
from .library import where_known
from .triton import (
    REALS,
    Function,
    Module,
    Reader,
    as_number,
    compared,
    extreme,
    of_conditions,
    of_integers,
)
from .values import BOOL, FLOAT32, INT32, INT64, Indexed, Number, Type, converted, integer, promoted

_NAMES: Final = {
    "exp_of": "exp", "exp2_of": "exp2", "expm1_of": "expm1", "log_of": "log", "log2_of": "log2",
    "log1p_of": "log1p", "sigmoid_of": "sigmoid", "tanh_of": "tanh",
    "__builtin_sqrtf": "sqrt", "__builtin_fabsf": "abs", "__builtin_floorf": "floor",
    "__builtin_ceilf": "ceil", "__builtin_powf": "power", "__builtin_sinf": "sin",
    "__builtin_cosf": "cos", "__builtin_tanf": "tan", "__builtin_erff": "erf",
}  # fmt: skip
_LANE, _LANES, _OTHER, _OTHERS = map(terms.variable, ("lane", "lanes", "other", "others"))
_OF_PAIRS: Final = ("batch", "head", "lane0", "lanes", "other0", "others")
_OF_BOUNDS: Final = ("batch", "head", "q0", "q1", "kv_len")
MOST_LANES: Final = 64  # of a block of scores
_LANES_CUT: Final = terms.bitwise("bitand", _LANES, terms.number(-16))
"""`lanes & ~15`, which is `lanes`: a multiple of 16."""


def number_of(value: Any) -> Number:
    """A value as a `Number`; a literal is an `int` if that holds it, and `0.5` a `double`."""
    if type(value) is int:
        of = INT32 if INT32.ends[0] <= value <= INT32.ends[1] else INT64
        return Number(terms.number(value), of)
    return Number(terms.real(value), DOUBLE) if isinstance(value, float) else as_number(value)


DOUBLE: Final = Type("float", 64)


class CReader(Reader):
    """Reads expressions in which operands are converted as in C."""

    @staticmethod
    def number(value: Any) -> Number:
        """A value as a `Number`."""
        return number_of(value)

    def _unary(self, op: ast.unaryop, value: Any) -> Number:
        number = self.number(value)
        if isinstance(op, ast.Not):
            return Number(~number.as_condition, BOOL)
        if isinstance(op, ast.USub):
            return self._negative(number)
        if isinstance(op, ast.Invert) and number.type.kind == "bool":  # in invariants
            return Number(~number.term, BOOL)
        raise NotDefined(f"{type(op).__name__} of {number.type}")

    def _negative(self, value: Number) -> Number:
        if value.type == INT64 or (value.type == INT32 and terms.is_number(value.term)):
            return integer(-value.term, value.type)
        if value.type.kind != "float":
            raise NotDefined(f"the negative of {value.type}")
        if value.term.op == "real":
            return Number(terms.real(-value.term.data), value.type)
        return Number(terms.apply("negative", value.term), FLOAT32)

    def _chosen(self, chosen: Number, then: Any, otherwise: Any) -> Number:
        x, y = self.number(then), self.number(otherwise)
        to = promoted(x.type, y.type)
        if x.type != y.type and to.kind == "int" and to.bits < 64:
            to = INT32
        x, y = converted(x, to), converted(y, to)
        return Number(terms.choice(chosen.as_condition, x.term, y.term), to)

    def _joined(self, op: ast.boolop, values: list[Any]) -> Number:
        join = terms.both if isinstance(op, ast.And) else terms.either
        return Number(join(*[self.number(value).as_condition for value in values]), BOOL)

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        x, y = self.number(left), self.number(right)
        if x.type != BOOL or y.type != BOOL:
            to = _of_both(x, y)
            x, y = converted(x, to), converted(y, to)
        return compared(op, x, y)

    def _changed(self, op: ast.operator, old: Any, value: Any) -> Number:
        return converted(self._operation(op, old, value), self.number(old).type)

    def _operation(self, op: ast.operator, left: Any, right: Any) -> Number:
        x, y = self.number(left), self.number(right)
        if x.type == y.type == BOOL and isinstance(op, (ast.BitAnd, ast.BitOr)):
            return of_conditions(op, x, y)
        to = _of_both(x, y)
        if to == INT64 and max(x.type.bits, y.type.bits) <= 32:
            raise NotDefined(f"{type(op).__name__} of integers of 32 bits")
        if type(op) not in (REALS if to == FLOAT32 else _INTEGER):
            raise NotDefined(f"{type(op).__name__} of {x.type} and {y.type}")
        x, y = converted(x, to), converted(y, to)
        if to == FLOAT32:
            return Number(terms.apply(REALS[type(op)], x.term, y.term), FLOAT32)
        return of_integers(op, x, y)


def _of_both(x: Number, y: Number) -> Type:
    return FLOAT32 if "float" in (x.type.kind, y.type.kind) else INT64


_INTEGER: Final = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)


class CppReader(CReader):
    """Reads C++ that was written as Python."""

    @property
    def builtins(self) -> Mapping[str, Callable[..., Any]]:
        return _FUNCTIONS


@dataclass(frozen=True)
class Array(Indexed):
    """A table that is never changed, with entries of a type of C++; `S` holds its address."""

    table: Table
    entries: str

    @property
    def type(self) -> Type:
        return CPP_TYPES[self.entries]

    def at(self, index: Term) -> Number:
        # Addresses count modulo 2**64, so the sum needs no wrapping at earlier steps.
        entry = terms.entry(self.table, terms.unwrapped_ring(index, 64))
        of = {"bool": BOOL, "real": FLOAT32}.get(self.table.kind, CPP_TYPES[self.entries])
        return Number(entry, of)


@dataclass(frozen=True)
class Places(Indexed):
    """Numbers and arrays at places that the text names, such as the argument `S`."""

    entries: Mapping[int, Any]

    def at(self, index: Term) -> Any:
        if not terms.is_number(index) or terms.value_of_number(index) not in self.entries:
            raise NotDefined(f"the place {index}")
        return self.entries[terms.value_of_number(index)]

    def put(self, index: Term, value: Number) -> Places:
        return Places({**self.entries, terms.value_of_number(index): converted(value, INT64)})


@dataclass(frozen=True)
class _Element(Indexed):
    """An array, of which the element of the pair is read and written."""

    place: Term
    of: Type
    value: Number | None = None

    @property
    def type(self) -> Type:
        return self.of

    def at(self, index: Term) -> Number:
        found = terms.replaced(terms.unwrapped_ring(index, 64), {_LANES_CUT: _LANES}.get)
        if found is not self.place:
            raise NotDefined(f"the place {index} of an array")
        if self.value is None:
            raise NotDefined("an array that nothing was written to")
        return self.value

    def put(self, index: Term, value: Number) -> _Element:
        if self.place is _LANE and self.value is not None:
            raise NotDefined("an array of lanes that is written to twice")
        new = replace(self, value=converted(value, self.of))
        new.at(index)
        return new


class CppHooks:
    """Reads the functions of C++ hooks as terms.

    Args:
        source: the text of the hooks.
        passed: the number or array at each place of `S`.
    """

    def __init__(self, source: str, passed: Mapping[int, Number | Array]) -> None:
        self._source, self._passed = source, Places(passed)

    def element(
        self, name: str, lane: str, pair: dict[str, Term], score: Term, before: Term | None = None
    ) -> Number:
        """The result of the hook `name` for a pair. Its lanes are values of the index `lane`.

        `pair` has the terms of q_idx, kv_idx, batch and head. `before` is the number that the hook
        overwrites or multiplies, by default the score.
        """
        other = "kv_idx" if lane == "q_idx" else "q_idx"
        place = _OTHER * _LANES + _LANE
        # The pair is that of one turn of the loops.
        row = (pair["batch"], pair["head"], pair[lane] - _LANE, _LANES, pair[other] - _OTHER,
               _OTHERS)  # fmt: skip
        args: dict[str, Any] = {
            key: Number(term, INT64) for key, term in zip(_OF_PAIRS, row, strict=True)
        }
        args["s"] = _Element(place, FLOAT32, Number(score if before is None else before, FLOAT32))
        # Scores without a bias are passed for slopes alone.
        raw = Number(score, FLOAT32) if name.startswith("slope") else None
        found = self._call(name, {**args, "raw": _Element(place, FLOAT32, raw)})
        return found.value  # type: ignore[no-any-return]

    def bounds(self, row: dict[str, Term]) -> dict[int, Term]:
        """Results of the hook `bounds`, by place, for a tile of queries q0..q1."""
        args = {name: Number(row[name], INT64) for name in _OF_BOUNDS}
        found = self._call("bounds", {**args, "found": Places({})})
        return {place: value.term for place, value in found.entries.items()}

    def _call(self, name: str, args: dict[str, Any]) -> Any:
        title, _, hooks = self._source.partition(PRELUDE)
        if re.search(r"^(?!//|$)|\\$", title, re.M) or re.search(
            r'^(?!extern "C" void | |}$|$)|^\s*#', hooks, re.M
        ):
            raise NotDefined("a text beside the prelude and the hooks")
        module = Module(python_of(self._source, (name,)), "the hooks")
        function = module.find(name)
        assert isinstance(function, Function)
        if [each.arg for each in function.tree.args.args] != ["S", *args]:
            raise NotDefined(f"the arguments of {name}")
        return CppReader(module, loops=_one_turn).call(name, self._passed, *args.values())


def _one_turn(reader: Reader, loop: ast.For | ast.While, scope: dict[str, Any]) -> None:
    """Reads the turn of the pair of a loop `for (I x = 0; x < lanes; x++)`, or over `others`.

    A turn changes its own variables and elements alone, so it is the same whatever came before.
    """
    turns = {"lanes": (_LANE, _LANES, _LANES_CUT), "others": (_OTHER, _OTHERS)}
    assert isinstance(loop, ast.While)
    counter, _, many = ast.unparse(loop.test).partition(" < ")
    *body, step = loop.body
    turn, *counts = turns.get(many, (None,))
    starts = counter in scope and number_of(scope[counter]) == Number(terms.number(0), INT64)
    if turn is None or not starts or ast.unparse(step) != f"{counter} += 1":
        raise NotDefined(f"the loop {ast.unparse(loop).splitlines()[0]!r}")
    changed = [part.id for statement in body for part in ast.walk(statement)
               if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]  # fmt: skip
    if number_of(scope.get(many)).term not in counts or scope.keys() & {*changed}:
        raise NotDefined("a loop whose turns depend on each other")
    own = {**scope, counter: Number(turn, INT64)}
    if own[counter] in scope.values():
        raise NotDefined(f"a loop over {many} within another")
    reader.run_through(body, own, "a loop")
    del scope[counter]
    for name, before in scope.items():
        # The last of the others overwrites what is kept of each lane.
        kept = isinstance(before, _Element) and before.place is _LANE and own[name] != before
        if kept and turn is _OTHER:
            raise NotDefined(f"lanes of {name} that all others write to")
    scope.update({name: own[name] for name in scope})


def _cast(to: Type) -> Callable[[Any], Number]:
    def function(value: Any) -> Number:
        number = number_of(value)
        if number.type == DOUBLE and to == FLOAT32 and number.term.op == "real":
            return Number(terms.real(rounded(number.term.data)), to)
        return converted(number, to)

    return function


def _address(of: str, value: Any) -> Indexed:
    if not isinstance(value, Indexed) or value.type != CPP_TYPES[of]:
        raise NotDefined(f"entries of {of} at an address of others")
    return value


def _array(of: str, size: Any) -> _Element:
    if size != MOST_LANES:
        raise NotDefined(f"an array of {size} lanes")
    return _Element(_LANE, CPP_TYPES[of])


def _complement(value: Any) -> Number:
    number = number_of(value)
    if number.type != INT64:
        raise NotDefined(f"the bits of {number.type}")
    return Number(-1 - number.term, INT64)


def _extreme(word: str, *args: Any) -> Number:
    values = list(map(number_of, args))
    to = FLOAT32 if "float" in [value.type.kind for value in values] else INT64
    return reduce(partial(extreme, word), [converted(value, to) for value in values])


def _divided(rule: Callable[[Term, Term], Term], short: bool) -> Callable[[Any, Any], Number]:
    """A divisor below 1 counts as 1. Short divisions use doubles: dividends are below 2**52."""

    def function(x: Any, c: Any) -> Number:
        by, of = (converted(number_of(value), INT64).term for value in (c, x))
        found = rule(of, terms.most(by, terms.number(1)))
        if short:
            found = where_known([of < 2**52, of > -(2**52)], found, of)
        return Number(found, INT64)

    return function


def _of_reals(name: str) -> Callable[..., Number]:
    def function(*args: Any) -> Number:
        reals = [converted(number_of(arg), FLOAT32).term for arg in args]
        return Number(terms.apply(name, *reals), FLOAT32)

    return function


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _cast(to) for name, to in CPP_TYPES.items()},
    "address": _address,
    "array": _array,
    "complement": _complement,
    "least": partial(_extreme, "minimum"),
    "most": partial(_extreme, "maximum"),
    "quotient": _divided(terms.quotient, short=False),
    "remainder": _divided(terms.remainder, short=False),
    "quotient_of_short": _divided(terms.quotient, short=True),
    "remainder_of_short": _divided(terms.remainder, short=True),
    "whole": lambda x: Number(terms.whole_part(converted(number_of(x), FLOAT32).term), INT64),
    "real_of": lambda x: Number(terms.of_bits(converted(number_of(x), INT64).term), FLOAT32),
    "__builtin_inff": lambda: Number(terms.real(float("inf")), FLOAT32),
    "__builtin_nanf": lambda _text: Number(terms.real(float("nan")), FLOAT32),
    **{name: _of_reals(real) for name, real in _NAMES.items()},
}
