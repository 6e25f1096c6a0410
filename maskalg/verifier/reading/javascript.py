"""JavaScript expressions as terms: the page of `explore` computes elements by such expressions.

Numbers are doubles. Integers are exact up to 2**53; larger ones are unknown. An operation on two
float32 numbers whose result is rounded to float32 (`f`) at once is the float32 operation: a double
has more than twice its bits. Bitwise operations cut their operands to 32 bits. The results of
`floorDiv`, `floorMod`, `whole` and `read` of `views/explore/static` are stated here, and tests run
them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

from ...formula.functions import FUNCTIONS
from ...formula.parameters import Slot
from .. import terms
from ..meaning import BATCH, HEAD, K, Meaning, NotDefined, Q, place, rounded
from ..terms import Term
from .braces import expression_of
from .cpp import DOUBLE, CReader, number_of
from .library import where_known
from .triton import REALS, WRAPPING, Module, extreme
from .values import BOOL, FLOAT32, INT64, Number, converted

EXACT: Final = 2**53
_INDICES: Final = {"q": Q, "k": K, "B": BATCH, "H": HEAD}
_BITS: Final = (ast.BitAnd, ast.BitOr, ast.BitXor)


def read_javascript(text: str, slots: dict[int, Slot], meaning: Meaning) -> Number:
    """The value of an expression for an element.

    Args:
        text: the expression. It may use q, k, B and H, numbers `S[slot]` and tensors `T[slot]`.
        slots: the slots, by index.
        meaning: gives the terms of the slots' numbers, tensors and sizes.
    """
    text = text.replace("===", "==").replace("!==", "!=")
    text = re.sub(r"\bMath\.(?=\w+\()", "", text)
    text = re.sub(r"\b([ST])\[(\d+)\]", r"\1\2", text)
    text = re.sub(r"\bT(\d+)\.shape\[(\d+)\]", r"shape\1_\2", text)
    scope: dict[str, Any] = {name: Number(term, INT64) for name, term in _INDICES.items()}
    for name in ("Infinity", "NaN"):
        scope[name] = Number(terms.real(float(name)), FLOAT32)
    for at, slot in slots.items():
        if slot.is_table:
            scope[f"T{at}"] = slot
            for axis in range(slot.ndim):
                scope[f"shape{at}_{axis}"] = Number(meaning.size(slot, axis), INT64)
        else:
            number = meaning.number(slot)
            real = slot.kind == "real"
            scope[f"S{at}"] = Number(number, DOUBLE) if real else _Signed(number, INT64)
    reads = {"read": 0, "read1": 1, "read2": None}  # `read2` looks at all places
    known = {name: partial(_read, meaning, axes) for name, axes in reads.items()}
    reader = _Reader(Module("", "the page"), summaries=known)
    return _number(reader.evaluated(expression_of(text), scope))


def _read(meaning: Meaning, axes: int | None, slot: Any, *indices: Any) -> Number:
    """An entry of a tensor."""
    rank = slot.ndim if isinstance(slot, Slot) else None
    if not (len(indices) if axes is None else axes) == len(indices) == rank:
        raise NotDefined(f"a read with {len(indices)} indices of {rank} axes")
    args = [converted(_number(index), INT64).term for index in indices]
    sizes = [meaning.size(slot, axis) for axis in range(slot.ndim)]
    entry = terms.entry(meaning.table(slot), place(args, sizes))
    if entry.sort == "bool":
        return converted(Number(entry, BOOL), INT64)
    return Number(entry, FLOAT32) if entry.sort == "real" else _exact(entry)


def _number(value: Any) -> Number:
    """A value as a `Number`; a literal with a fraction is a double."""
    if type(value) is not int:
        return number_of(value)
    if abs(value) > EXACT:
        raise NotDefined(f"the number {value}, which a double may not hold")
    return Number(terms.number(value), INT64)


def _real(value: Number) -> Number:
    """A number among float32 numbers; an integer has to be one of them."""
    held = terms.is_number(value.term) and abs(terms.value_of_number(value.term)) <= 2**24
    if value.type.kind != "float" and not held:
        raise NotDefined(f"{value.type} among real numbers")
    return converted(value, FLOAT32)


def _alike(*values: Any) -> list[Number]:
    """Numbers of one kind, or conditions."""
    numbers = list(map(_number, values))
    kinds = {number.type.kind for number in numbers}
    if "bool" in kinds and len(kinds) > 1:  # `true === 1` is false
        raise NotDefined(f"conditions among {kinds}")
    return list(map(_real, numbers)) if "float" in kinds else numbers


@dataclass(frozen=True)
class _Signed(Number):
    """An integer that may be -0, which `f` makes another real number than 0."""


def _signed(number: Number, may: bool) -> Number:
    zero = not terms.is_number(number.term) or number.term is terms.number(0)
    return _Signed(number.term, number.type) if may and zero else number


def _may(*values: Any) -> list[bool]:
    return [isinstance(value, _Signed) for value in values]


class _Reader(CReader):
    number = staticmethod(_number)

    @property
    def builtins(self) -> Mapping[str, Callable[..., Any]]:
        return _FUNCTIONS

    def _negative(self, value: Number) -> Number:
        if value.type.kind == "int":
            return _signed(_exact(-value.term), True)
        if value.term.op != "real":
            raise NotDefined("the negative of a real number")
        return Number(terms.real(-value.term.data), value.type)

    def _unary(self, op: ast.unaryop, value: Any) -> Number:
        if isinstance(op, ast.UAdd):
            return _signed(converted(_number(value), INT64), *_may(value))
        return super()._unary(op, value)

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        return super()._compared(op, *_alike(left, right))

    def _chosen(self, chosen: Number, then: Any, otherwise: Any) -> Number:
        found = super()._chosen(chosen, *_alike(then, otherwise))
        return _signed(found, any(_may(then, otherwise)))

    def _joined(self, op: ast.boolop, values: list[Any]) -> Number:
        kinds = {_number(value).type.kind for value in values}
        if kinds != {"bool"}:
            raise NotDefined(f"{type(op).__name__} of {kinds}")
        return super()._joined(op, values)

    def _operation(self, op: ast.operator, left: Any, right: Any) -> Number:
        x, y = _number(left), _number(right)
        integers = {x.type.kind, y.type.kind} == {"int"}
        if type(op) in WRAPPING and integers:
            first, second = _may(x, y)
            may = {ast.Add: first and second, ast.Sub: first}.get(type(op), True)
            return _signed(_exact(WRAPPING[type(op)](x.term, y.term)), may)
        if type(op) in REALS:
            return _rounded_next(REALS[type(op)], x, y)
        if not isinstance(op, _BITS) or not integers:
            raise NotDefined(f"{type(op).__name__} of {x.type} and {y.type}")
        cut = [Number(terms.wrapped(side.term, 32), INT64) for side in (x, y)]
        return super()._operation(op, *cut)


def _divided(rule: Callable[[Term, Term], Term]) -> Callable[[Any, Any], Number]:
    def function(dividend: Any, divisor: Any) -> Number:
        x, c = (converted(_number(value), INT64).term for value in (dividend, divisor))
        known = [c >= 1]
        if rule is terms.remainder:  # it subtracts a multiple of c near x, held by a double, too
            known += _held(x - c) + _held(x + c)
        found = _exact(where_known(known, rule(x, c), x))
        return _signed(found, rule is terms.quotient and any(_may(dividend)))

    return function


def _extreme(word: str) -> Callable[..., Number]:
    def function(*args: Any) -> Number:
        values = _alike(*args)
        if BOOL in [value.type for value in values]:
            raise NotDefined(f"the {word} of conditions")
        return _signed(reduce(partial(extreme, word), values), any(_may(*values)))

    return function


def _of_real(name: str) -> Callable[[Any], Number]:
    return lambda x: Number(terms.apply(name, _real(_number(x)).term), DOUBLE)


def _exact(term: Term) -> Number:
    """An integer; unknown unless a double holds it exactly."""
    return Number(where_known(_held(term), term, term), INT64)


def _held(term: Term) -> list[Term]:
    low, high = terms.number(-EXACT), terms.number(EXACT)
    return [term >= low, high >= term]


def _rounded_next(name: str, left: Number, right: Number) -> Number:
    """The result of an operation on float32 numbers, not yet rounded to float32."""
    if not left.type == right.type == FLOAT32:
        raise NotDefined(f"{name} of {left.type} and {right.type}")
    return Number(terms.apply(name, left.term, right.term), DOUBLE)


def _as_float32(x: Any) -> Number:
    value = _number(x)
    if value.type.kind == "float":
        term = value.term
        return Number(terms.real(rounded(term.data)) if term.op == "real" else term, FLOAT32)
    if isinstance(value, _Signed):
        raise NotDefined("an integer that may be -0 as a real number")
    return converted(value, FLOAT32)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _of_real(name) for name in FUNCTIONS},
    "f": _as_float32,
    "floorDiv": _divided(terms.quotient),
    "floorMod": _divided(terms.remainder),
    "whole": lambda x: Number(terms.whole_part(_real(_number(x)).term), INT64),
    "min": _extreme("minimum"),
    "max": _extreme("maximum"),
    "pow": lambda x, y: _rounded_next("power", _number(x), _number(y)),
}
