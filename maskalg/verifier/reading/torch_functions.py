"""Functions of torch as terms: the function is called with indices that record their operations.

A captured tensor is replaced by one of unknown entries, and the module torch by one whose
operations make terms. Integers have torch's widths: they wrap, `//` and `%` round down, a Python
number takes the type of the tensor beside it. A read outside of a table gives an unknown entry.
"""

from __future__ import annotations

import ast
import builtins
import math
import types
from collections.abc import Callable, Iterable
from functools import reduce
from types import SimpleNamespace
from typing import Any, Final

import torch

from ...engine import long_integers
from ...formula.meaning import MOST_WHOLE
from .. import terms
from ..meaning import NotDefined, place
from ..terms import Table, Term
from .library import Long, floored, where_known
from .triton import REALS, alike, compared, extreme, of_conditions, of_integers
from .values import BOOL, FLOAT32, INT64, Number, Type, converted, type_of

_RAISED: Final = (
    TypeError, NameError, AttributeError, IndexError, ValueError, ArithmeticError, RuntimeError,
)  # fmt: skip


def read_function(
    function: Callable[..., Any],
    arguments: Iterable[Number],
    tables: Callable[[torch.Tensor], Table],
) -> Number:
    """The result of a function for one element.

    Args:
        function: a function of tensors, which may capture tensors, numbers and lists of these.
        arguments: the indices, and the score if the function takes one.
        tables: gives the table of a captured tensor.
    """

    def known(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            table = _Captured(tables(value), type_of(value.dtype), tuple(value.shape))
            return table if value.ndim else table[()]
        if isinstance(value, (list, tuple)):
            return [known(part) for part in value]
        for real, own in ((torch, _TORCH), (long_integers, _LONGS), (math, math)):
            if value is real:
                return own
        if isinstance(value, (bool, int, float)):
            return value
        raise NotDefined(f"the captured {value!r}")

    assert isinstance(function, types.FunctionType)
    cells = [types.CellType(known(cell.cell_contents)) for cell in function.__closure__ or ()]
    scope = {"__builtins__": builtins}
    own = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, tuple(cells)
    )
    try:
        return _number(own(*map(Traced, arguments)))
    except _RAISED as problem:
        raise NotDefined(f"a function that raises {problem}") from problem


class Traced:
    """A tensor of one element, whose operations make terms."""

    def __init__(self, number: Number) -> None:
        self.number = number
        self.device = None

    def __bool__(self) -> bool:
        raise NotDefined("a choice of Python by a tensor")

    __hash__ = None  # type: ignore[assignment]

    def __invert__(self) -> Traced:
        term, of = self.number.term, self.number.type
        if of.kind == "bool":
            return Traced(Number(~term, BOOL))
        return Traced(Number(-1 - term, of))

    def __neg__(self) -> Traced:
        return _operation(ast.Mult(), self, -1)

    def long(self) -> Traced:
        number = self.number
        if number.type.kind == "float":
            return Traced(Number(terms.whole_part(_cut(number.term)), INT64))
        return Traced(converted(number, INT64))

    def float(self) -> Traced:
        return Traced(converted(self.number, FLOAT32))

    def clamp(self, least: Any = None, most: Any = None, **ends: Any) -> Traced:
        return _clamp(self, least, most, **ends)

    def nan_to_num(self, number: Any) -> Traced:
        if number != 0:
            raise NotDefined("a number other than 0 for a NaN")
        return Traced(Number(terms.apply(_NO_NAN, self.number.term), self.number.type))


class _Captured:
    """A tensor of unknown entries."""

    def __init__(self, table: Table, entries: Type, shape: tuple[int, ...]) -> None:
        self._table, self._entries, self._shape = table, entries, shape

    def __getitem__(self, index: Any) -> Traced:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self._shape):
            raise NotDefined(f"{len(indices)} indices of {len(self._shape)} axes")
        numbers, counts = list(map(_number, indices)), list(map(terms.number, self._shape))
        if any(number.type.kind != "int" for number in numbers):
            raise NotDefined("an index that is no integer")
        known = [law for number, count in zip(numbers, counts, strict=True)
                 for law in (number.term >= 0, count > number.term)]  # fmt: skip
        # Clamping changes nothing where the index is inside, and is how the formula reads.
        at = place([number.term for number in numbers], counts)
        return Traced(Number(where_known(known, terms.entry(self._table, at), at), self._entries))


def _number(value: Any) -> Number:
    """The element of a tensor, or a Python number with the type torch gives it by itself."""
    if isinstance(value, Traced):
        return value.number
    if type(value) is int:
        return Number(terms.number(value), INT64)
    return alike(value, Number(terms.TRUE, BOOL))[0]


def _beside(left: Any, right: Any) -> tuple[Number, Number]:
    """Two operands, converted to the type in which torch computes."""
    sides = [side.number if isinstance(side, Traced) else side for side in (left, right)]
    if not any(isinstance(side, Number) and side.type.kind != "bool" for side in sides):
        sides = [_number(side) if type(side) is int else side for side in sides]
    of = [side.type for side in sides if isinstance(side, Number)]
    if len(of) == 2 and {t.kind for t in of} == {"int"} and of[0].signed != of[1].signed:
        unsigned, signed = of if of[1].signed else of[::-1]
        to = Type("int", min(max(signed.bits, 2 * unsigned.bits), 64))
        sides = [converted(side, to) for side in sides]
    return alike(*sides)


def _operation(op: ast.operator, left: Any, right: Any) -> Traced:
    x, y = _beside(left, right)
    if isinstance(op, ast.Div) or x.type.kind == "float":
        name = REALS.get(type(op))
        if name is None or (x.type.kind == "float" and x.type != FLOAT32):
            raise NotDefined(f"{type(op).__name__} of {x.type}")
        x, y = converted(x, FLOAT32), converted(y, FLOAT32)
        return Traced(Number(terms.apply(name, x.term, y.term), FLOAT32))
    if x.type.kind == "bool":
        return Traced(of_conditions(op, x, y))
    if isinstance(op, (ast.FloorDiv, ast.Mod)):
        rounded = terms.quotient if isinstance(op, ast.FloorDiv) else terms.remainder
        return Traced(floored(rounded)(x, y))
    return Traced(of_integers(op, x, y))


_OPERATORS: Final[dict[str, ast.operator]] = {
    "add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "truediv": ast.Div(),
    "floordiv": ast.FloorDiv(), "mod": ast.Mod(), "pow": ast.Pow(), "and": ast.BitAnd(),
    "or": ast.BitOr(), "xor": ast.BitXor(),
}  # fmt: skip
_SIGNS: Final[dict[str, ast.cmpop]] = {
    "ge": ast.GtE(), "gt": ast.Gt(), "le": ast.LtE(), "lt": ast.Lt(), "eq": ast.Eq(),
    "ne": ast.NotEq(),
}  # fmt: skip


def _of_sign(op: ast.cmpop) -> Callable[[Any, Any], Traced]:
    return lambda left, right: Traced(compared(op, *_beside(left, right)))


def _of_operator(op: ast.operator, swapped: bool) -> Callable[[Any, Any], Traced]:
    return lambda left, right: _operation(op, *((right, left) if swapped else (left, right)))


for _name, _op in _OPERATORS.items():
    setattr(Traced, f"__{_name}__", _of_operator(_op, False))
    setattr(Traced, f"__r{_name}__", _of_operator(_op, True))
for _name, _sign in _SIGNS.items():
    setattr(Traced, f"__{_name}__", _of_sign(_sign))


# --- functions of torch --------------------------------------------------------------------------

_NO_NAN: Final = "0 for a NaN"


def _cut(term: Term) -> Term:
    """The real number inside of `nan_to_num` and a clamp, which a conversion to integers needs."""
    for name, end in (("minimum", MOST_WHOLE), ("maximum", -MOST_WHOLE)):
        rest = [arg for arg in term.args if arg is not terms.real(end)]
        if term.op != "apply" or term.data != name or len(rest) != 1:
            raise NotDefined("a real number that may be past an integer's width")
        term = rest[0]
    if term.op != "apply" or term.data != _NO_NAN:
        raise NotDefined("a NaN made an integer")
    return term.args[0]


def _clamp(x: Any, least: Any = None, most: Any = None, **ends: Any) -> Traced:
    least, most = ends.get("min", least), ends.get("max", most)
    for end, rule in ((least, _maximum), (most, _minimum)):
        x = x if end is None else rule(x, end)
    assert isinstance(x, Traced)
    return x


def _extreme(name: str) -> Callable[[Any, Any], Traced]:
    return lambda left, right: Traced(extreme(name, *_beside(left, right)))


_maximum, _minimum = _extreme("maximum"), _extreme("minimum")


def _where(condition: Traced, then: Any, otherwise: Any) -> Traced:
    x, y = _beside(then, otherwise)
    return Traced(Number(terms.choice(condition.number.as_condition, x.term, y.term), x.type))


def _full_like(index: Traced, value: Any, dtype: torch.dtype) -> Traced:
    return Traced(converted(_number(value), type_of(dtype)))


class _Torch:
    """The stand-in for the module torch: its functions on terms."""

    bool = torch.bool
    where = staticmethod(_where)
    clamp = staticmethod(_clamp)
    maximum = staticmethod(_maximum)
    minimum = staticmethod(_minimum)
    full_like = staticmethod(_full_like)

    @staticmethod
    def tensor(value: Any) -> Traced:
        return Traced(_number(value))

    def __getattr__(self, name: str) -> Callable[[Any], Traced]:
        """An unknown function of a real number, by its name."""
        return lambda x: Traced(Number(terms.apply(name, _real(x)), FLOAT32))


def _real(x: Any) -> Term:
    number = _number(x)
    if number.type.kind != "float":
        raise NotDefined("a function of integers, which may be an integer")
    return number.term


# --- integers past 64 bits -----------------------------------------------------------------------


def _long(limbs: int, term: Term) -> Long:
    return Long(terms.wrapped(term, 64 * limbs), limbs)


def _computed(op: str, parts: list[Long]) -> Long:
    def step(x: Long, y: Long) -> Long:
        return _long(_limbs(x, y), terms.OF_INTEGERS[op](x.term, y.term))

    return reduce(step, parts)


def _limbs(x: Long, y: Long) -> int:
    if x.limbs != y.limbs:
        raise NotDefined(f"integers of {x.limbs} and {y.limbs} parts")
    return x.limbs


def _of_longs(name: str) -> Callable[[Long, Long], Traced]:
    op = _SIGNS[name]

    def rule(x: Long, y: Long) -> Traced:
        _limbs(x, y)
        return Traced(compared(op, Number(x.term, INT64), Number(y.term, INT64)))

    return rule


_LONGS: Final = SimpleNamespace(
    is_tensor=lambda index: True,
    index=lambda position: position.long(),
    of=lambda x, limbs: Long(converted(_number(x), INT64).term, limbs),
    of_number=lambda number, limbs, device: _long(limbs, terms.number(number)),
    computed=_computed,
    where=lambda c, x, y: Long(terms.choice(_number(c).as_condition, x.term, y.term), _limbs(x, y)),
    clamped=lambda x: _clamp(Traced(Number(x.term, INT64)), *INT64.ends),
    real=lambda x: Traced(Number(terms.apply("a double of", terms.real_of(x.term)), FLOAT32)),
    COMPARISONS={name: _of_longs(name) for name in ("ge", "gt", "eq")},
)
"""The stand-in for `engine/long_integers.py`, whose results tests compare with Python's."""

_TORCH: Final = _Torch()
