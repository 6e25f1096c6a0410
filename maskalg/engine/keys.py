"""A structure read back from its key.

An operator of a compiled or an exported graph is passed the key of a structure as text. The
process that runs the graph need not be the one that built the expression, so the text suffices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast, get_args

import torch

from ..errors import MaskValueError
from ..formula.derived import Derived
from ..formula.expression import Expression
from ..formula.meaning import BITWISE
from ..formula.nodes import Node, Op, numeric
from ..formula.parameters import INTEGERS, Kind, Order, Parameter, Scalar, Table
from ..formula.printing import named
from . import messages
from .normal_form import Bound, Structure, Value, bound, known, value_of

_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
_PARAMETER: Final = re.compile(r"([$@])(\w+):(bool|int|real)(\d*)(?:>=(-?\d+))?(?:~([a-z]+))?")
_DTYPES: Final[dict[str, torch.dtype]] = {
    "bool": torch.bool,
    "int": torch.int64,
    "real": torch.float32,
}
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("index", "extent", "floordiv", "mod", "trunc", *BITWISE), "int"),
    **dict.fromkeys(("score", "div", "pow", "call"), "real"),
    **dict.fromkeys(("ge", "gt", "eq", "and", "or", "not"), "bool"),
}
_NUMBERS: Final = ("add", "mul", "min", "max", "where")


def structure_of(key: str) -> Structure:
    """The structure with this key: looked up, or read from the text where it is new here.

    Raises:
        ValueError: a text that is no key.
    """
    structure = known(key)
    if structure is not None:
        return structure
    formulas, _, pattern = key.rpartition(" / ")
    try:
        reader = _Reader(formulas, [int(place) for place in pattern.split(",") if place])
        mask, bias = reader.node(), reader.node("+")
        structure = bound(Expression(mask, bias, named("key"))).structure
    except (StopIteration, IndexError, AttributeError, ValueError) as error:
        raise messages.not_a_key(key) from error
    if structure.key != key:
        raise messages.not_a_key(key)
    return structure


class ByKind(NamedTuple):
    """The values of a structure's slots as operators take them: in three lists by kind."""

    tables: list[torch.Tensor]
    integers: list[int]
    reals: list[float]


def by_kind(parameters: list[Parameter]) -> ByKind:
    """The values of parameters, in their order; `torch.compile` follows this function."""
    found = ByKind([], [], [])
    compiling = torch.compiler.is_compiling()
    for parameter in parameters:
        value = value_of(parameter)
        if compiling and isinstance(parameter, Derived):
            found.tables.append(parameter.now())
        elif isinstance(value, torch.Tensor):
            found.tables.append(value)
        elif isinstance(value, INTEGERS):
            found.integers.append(value)
        else:
            found.reals.append(value)
    return found


def form_of(
    key: str,
    tables: Sequence[torch.Tensor],
    integers: Sequence[int],
    reals: Sequence[float],
) -> Bound:
    """A structure with its values, which are passed as three lists by kind."""
    structure = structure_of(key)
    _check_counts(structure, (len(tables), len(integers), len(reals)))
    tensors, whole, real = iter(tables), iter(integers), iter(reals)
    values: list[Value] = [
        next(tensors) if slot.is_table else next(whole) if slot.kind == "int" else next(real)
        for slot in structure.slots
    ]
    return Bound(structure, tuple(values))


def _check_counts(structure: Structure, found: tuple[int, int, int]) -> None:
    integers = sum(slot.kind == "int" for slot in structure.scalars)
    wanted = (len(structure.tables), integers, len(structure.scalars) - integers)
    if found != wanted:
        raise MaskValueError(
            f"the structure {structure.key!r} takes {wanted[0]} tensors, {wanted[1]} integers and "
            f"{wanted[2]} real numbers, got {found[0]}, {found[1]} and {found[2]}. The operators "
            "of maskalg are called by ma.attention and to_dense, which pass them."
        )


class _Reader:
    """Reads the nodes of a key one after the other, with parameters that stand for its slots."""

    def __init__(self, formulas: str, pattern: list[int]) -> None:
        self.tokens: Iterator[str] = iter(_TOKEN.findall(formulas))
        self.places = iter(pattern)
        self.scalars: dict[int, Scalar] = {}
        self.tensors: dict[int, torch.Tensor] = {}

    def node(self, before: str | None = None) -> Node:
        """The next node; a token that is expected `before` it is skipped."""
        if before is not None and next(self.tokens) != before:
            raise ValueError(before)
        if next(self.tokens) != "(":
            raise ValueError("(")
        return self._rest()

    def _rest(self) -> Node:
        op = next(self.tokens)
        if op not in get_args(Op):
            raise ValueError(op)
        data: object = None
        own: list[Parameter] = []
        args: list[Node] = []
        for token in self.tokens:
            if token == ")":
                break
            if token == "(":
                args.append(self._rest())
            elif token[0] in "$@":
                own.append(self._parameter(token))
            else:
                data = _data(op, token)
        return Node(cast(Op, op), _kind(op, data, own, args), tuple(args), data, tuple(own))

    def _parameter(self, text: str) -> Parameter:
        found = _PARAMETER.fullmatch(text)
        if found is None:
            raise ValueError(text)
        sign, name, kind, rank, low, order = found.groups()
        if order not in (None, *get_args(Order)):
            raise ValueError(order)
        declared = cast(Order | None, order)
        bound_below = None if low is None else int(low)
        place = next(self.places)
        if sign == "$":
            value = 0 if kind == "int" else 0.0
            return self.scalars.setdefault(place, Scalar(name, value, bound_below))
        empty = torch.empty([0] * int(rank), dtype=_DTYPES[kind])
        return Table(name, self.tensors.setdefault(place, empty), bound_below, declared)


def _data(op: str, token: str) -> object:
    """The data of an operation: a name, the number of a dimension, or a constant."""
    if op == "extent":
        return int(token)
    if op != "const":
        return token
    if token in ("True", "False"):
        return token == "True"
    return int(token) if re.fullmatch(r"-?\d+", token) else float(token)


def _kind(op: str, data: object, own: list[Parameter], args: list[Node]) -> Kind:
    if op in ("scalar", "read"):
        return own[0].kind
    if op == "const":
        return "bool" if isinstance(data, bool) else "int" if isinstance(data, int) else "real"
    if op in _NUMBERS:
        return numeric(args[1:] if op == "where" else args)
    if op == "opaque":  # a function of the process that took it
        raise ValueError(op)
    if op not in _KINDS:
        raise NotImplementedError(f"no kind for {op!r}: add it to maskalg/engine/keys.py")
    return _KINDS[op]
