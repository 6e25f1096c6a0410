"""JavaScript expressions as terms: the page of `explore` computes elements by such expressions.

Numbers are doubles. Integers are exact up to 2**53; larger ones are unknown. An operation on two
float32 numbers whose result is rounded to float32 (`f`) at once is the float32 operation: a double
has more than twice its bits. Bitwise operations cut their operands to 32 bits. The results of
`floorDiv`, `floorMod`, `whole` and `read` of `views/explore/static` are stated here, and tests run
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Final

from ...formula.functions import FUNCTIONS
from ...formula.parameters import Slot
from .. import terms
from ..meaning import BATCH, HEAD, K, Meaning, NotDefined, Q, place, rounded
from ..terms import Term
from .cpp import Numbers, operation
from .library import where_known
from .triton import extreme
from .values import BOOL, FLOAT32, INT64, Number, Type, converted

EXACT: Final = 2**53
_DOUBLE: Final = Type("float", 64)
_INDICES: Final = {"q": Q, "k": K, "B": BATCH, "H": HEAD}
_INTEGERS: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "+": terms.add, "-": terms.subtract, "*": terms.multiply, "floorDiv": terms.quotient,
    "floorMod": terms.remainder,
}  # fmt: skip
_REALS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "pow": "power"}


def read_javascript(text: str, slots: dict[int, Slot], meaning: Meaning) -> Number:
    """The value of an expression for an element.

    Args:
        text: the expression. It may use q, k, B and H, numbers `S[slot]` and tensors `T[slot]`.
        slots: the slots, by index.
        meaning: gives the terms of the slots' numbers, tensors and sizes.
    """
    text = text.replace("===", "==").replace("!==", "!=").replace("Math.", "")
    text = re.sub(r"\b([ST])\[(\d+)\]", r"\1\2", text)
    text = re.sub(r"\bT(\d+)\.shape\[(\d+)\]", r"shape\1_\2", text)
    return _Expression(text, slots, meaning).whole()


class _Expression(Numbers):
    def __init__(self, text: str, slots: dict[int, Slot], meaning: Meaning) -> None:
        super().__init__(text)
        self._slots, self._meaning = slots, meaning

    def _named(self, name: str) -> Number:
        if name in _INDICES:
            return Number(_INDICES[name], INT64)
        if name in ("Infinity", "NaN"):
            return Number(terms.real(float(name)), FLOAT32)
        found = re.fullmatch(r"(S|shape)(\d+)(?:_(\d+))?", name)
        if found is None:
            raise NotDefined(f"the name {name}")
        slot = self._slot(found[2])
        if found[3] is not None:
            return Number(self._meaning.size(slot, int(found[3])), INT64)
        return Number(self._meaning.number(slot), _DOUBLE if slot.kind == "real" else INT64)

    def _slot(self, place: str) -> Slot:
        found = self._slots.get(int(place)) if place.isdigit() else None
        if found is None:
            raise NotDefined(f"slot {place}")
        return found

    def _literal(self, token: str) -> Number:
        if token.isdigit():
            return Number(terms.number(int(token)), INT64)
        return Number(terms.real(float(token)), _DOUBLE)

    def _negative(self, value: Number) -> Number:
        if value.type.kind == "int":
            return _exact(-value.term)
        if value.term.op != "real":
            raise NotDefined("the negative of a real number")
        return Number(terms.real(-value.term.data), value.type)

    def _unary(self) -> Number:
        if self._next() != "+":
            return super()._unary()
        self._take()
        return converted(self._unary(), INT64)

    def _operated(self, sign: str, left: Number, right: Number) -> Number:
        kinds = {left.type.kind, right.type.kind}
        if sign in _INTEGERS and kinds == {"int"}:
            return _exact(_INTEGERS[sign](left.term, right.term))
        if sign in _REALS:
            return _rounded_next(_REALS[sign], left, right)
        if sign in "&|^" and kinds == {"int"}:
            cut = [Number(terms.wrapped(side.term, 32), INT64) for side in (left, right)]
            return operation(sign, *cut)
        if sign in "&|^" or (sign in ("&&", "||") and kinds != {"bool"}):
            raise NotDefined(f"{sign} of {left.type} and {right.type}")
        return operation(sign, left, right)

    def _call(self, name: str) -> Number:
        if name not in ("read", "read1", "read2"):
            return super()._call(name)
        self._take("(")
        slot = self._slot(self._take().removeprefix("T"))
        args: list[Term] = []
        while self._next() == ",":
            self._take()
            args.append(converted(self._value(), INT64).term)
        self._take(")")
        seen = {"read": 0, "read1": 1}.get(name, len(args))  # `read2` looks at all places
        if not seen == len(args) == slot.ndim:
            raise NotDefined(f"{name} with {len(args)} indices of {slot.ndim} axes")
        sizes = [self._meaning.size(slot, axis) for axis in range(slot.ndim)]
        entry = terms.entry(self._meaning.table(slot), place(args, sizes))
        if entry.sort == "bool":
            return converted(Number(entry, BOOL), INT64)
        return Number(entry, FLOAT32) if entry.sort == "real" else _exact(entry)

    def _called(self, name: str, args: list[Number]) -> Number:
        if name == "f":
            return _as_float32(*args)
        if name in ("floorDiv", "floorMod"):
            x, c = [converted(arg, INT64).term for arg in args]
            known = [c >= 1]
            if name == "floorMod":  # it subtracts a multiple of c near x, held by a double, too
                known += _held(x - c) + _held(x + c)
            return _exact(where_known(known, _INTEGERS[name](x, c), x))
        if name == "whole":
            return Number(terms.whole_part(converted(args[0], FLOAT32).term), INT64)
        if name in ("min", "max"):
            to = INT64 if all(arg.type.kind == "int" for arg in args) else FLOAT32
            return reduce(partial(extreme, f"{name}imum"), [converted(arg, to) for arg in args])
        if name == "pow":
            return _rounded_next("power", *args)
        if name in FUNCTIONS:
            return Number(terms.apply(name, converted(args[0], FLOAT32).term), _DOUBLE)
        raise NotDefined(f"the function {name}")


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
    return Number(terms.apply(name, left.term, right.term), _DOUBLE)


def _as_float32(value: Number) -> Number:
    if value.type.kind == "float":
        term = value.term
        return Number(terms.real(rounded(term.data)) if term.op == "real" else term, FLOAT32)
    return converted(value, FLOAT32)
