"""Remembers traced formulas, for functions with the same code and other captured values.

A function's signature is its code and all it captures except the values of numbers and tensors. A
model often builds the functions of its masks anew in every step: the same code over other values.
Two functions with one signature trace to one formula, so the second need not be traced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch

from ..engine.normal_form import Bound, Structure, bound, keyed, shared
from ..engine.recent import Recent
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import Node
from ..formula.parameters import INT32_MAX, Kind, Parameter, Scalar, Table
from ..formula.printing import Label
from .bounds import Bounds, rounds_on_host
from .captures import LONGEST, default_names, is_ours, names
from .meanings.minus_infinity import is_minus_infinity
from .meanings.wrapping import ENDS
from .recorder import Key, Recorder

Captured = int | float | torch.Tensor

# Libraries whose attributes do not change.
_LIBRARIES: Final = ("torch", "math", "operator", "functools", "builtins")
_PLAIN: Final = (bool, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Signature:
    """The code of a function and of those it calls, and what they capture.

    Attributes:
        key: everything but the values, with their kinds, signs, widths, dtypes, ranks and devices.
        places: where each value was found, as `Captures` names it.
        values: the captured numbers and tensors.
    """

    key: tuple[object, ...]
    places: tuple[Key, ...]
    values: tuple[Captured, ...]


class _Unlike(Exception):
    """Raised for a function that holds something a signature cannot describe."""


def signature_of(function: Callable[..., Any]) -> Signature | None:
    """The signature of a plain function; None where it reaches objects that may change."""
    walk = _Walk()
    try:
        walk.visit(function, ("function",))
    except _Unlike:
        return None
    return Signature(tuple(walk.key), tuple(walk.values), tuple(walk.values.values()))


class _Walk:
    """Visits the captured values of a function, in a fixed order.

    Each step of decoding waits for such a walk: `key += (…)` costs no call, as `append` does.
    """

    def __init__(self) -> None:
        self.key: list[object] = []
        self.values: dict[Key, Captured] = {}
        self._seen: dict[Key, int] = {}

    def visit(self, value: Any, place: Key) -> None:
        kind = type(value)
        if kind is int or kind is float:
            if not -INT32_MAX <= value <= INT32_MAX:
                raise _Unlike
            # A sign decides the declared bound, a width the dtypes whose entries it may be added
            # to.
            self.key += (kind, (value > 0) - (value < 0), bisect_right(ENDS, value))
            self.values[place] = value
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            self._tensor(value)
        elif kind is FunctionType:
            self._function(value)
        elif kind in _PLAIN:
            self.key += (kind, value)
        elif kind in (list, tuple) and len(value) <= LONGEST:
            self.key += (kind, len(value))
            for i, item in enumerate(value):
                self.visit(item, (*place, i))
        elif _is_fixed(value, kind):
            self.key += (value,)
        else:
            raise _Unlike

    def _again(self, place: Key) -> bool:
        """Whether a place was visited before; its number goes into the key."""
        number = self._seen.get(place)
        if number is not None:
            self.key += (number,)
            return True
        self._seen[place] = number = len(self._seen)
        self.key += (number,)
        return False

    def _tensor(self, tensor: torch.Tensor) -> None:
        if tensor.layout != torch.strided:
            raise _Unlike  # tracing refuses it
        place = ("tensor", id(tensor))
        if not self._again(place):
            self.key += (tensor.dtype, tensor.ndim, tensor.device, tensor.requires_grad)
            self.key += (is_minus_infinity(tensor), rounds_on_host(tensor))
            self.values[place] = tensor

    def _function(self, function: FunctionType) -> None:
        ours = is_ours(function)
        if not ours and function.__closure__ is None:
            self.key += (function,)
            return
        number = id(function)
        if self._again(("called", number)):
            return
        code = function.__code__
        self.key += (code,)
        for cell in function.__closure__ or ():
            place = ("cell", id(cell))
            if not self._again(place):
                self.visit(_contents(cell), place)
        if function.__defaults__:
            for name, value in zip(default_names(function), function.__defaults__, strict=True):
                self.visit(value, ("default", number, name))
        if function.__kwdefaults__:
            for name, value in function.__kwdefaults__.items():
                self.key += (name,)
                self.visit(value, ("default", number, name))
        if not ours:
            return
        scope = function.__globals__
        for name in _globals(code):
            if name in scope:
                self.key += (name,)
                at = ("global", id(scope), name)
                if not self._again(at):
                    self.visit(scope[name], at)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise _Unlike from None


@lru_cache(maxsize=1024)
def _globals(code: CodeType) -> tuple[str, ...]:
    return tuple(sorted(set(names(code))))


def _is_fixed(value: Any, kind: type) -> bool:
    """Whether a value is a module, function or class of a library, whose attributes stay."""
    if kind is ModuleType or kind is type:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        return str(name).split(".")[0] in _LIBRARIES
    return kind is BuiltinFunctionType and isinstance(value.__self__, ModuleType)


_TEMPLATES: Final[Recent[object, Template]] = Recent(512)


@dataclass(frozen=True)
class Template:
    """A traced formula without its tensors.

    Attributes:
        node: the formula; its tables are empty.
        sources: the index of the captured value that each parameter stands for, by its `id`.
    """

    node: Node
    sources: dict[int, int]

    @cached_property
    def normal_form(self) -> tuple[Structure, tuple[int, ...]]:
        """The structure of the formula as a mask, and the index of the value in each slot."""
        mask = Expression(self.node, nodes.SCORE, Label("formula", (self.node,)))
        _, parameters = keyed(mask)
        return bound(mask).structure, tuple([self.sources[id(p)] for p in parameters])


@dataclass(frozen=True)
class Filled:
    """A formula that was traced before, of a function that captures `values`."""

    template: Template
    values: tuple[Captured, ...]

    @property
    def kind(self) -> Kind:
        return self.template.node.kind

    def node(self) -> Node:
        made: dict[int, Parameter] = {}

        def other(parameter: Parameter) -> Parameter:
            source = self.template.sources[id(parameter)]
            if source not in made:
                value = self.values[source]
                if isinstance(value, torch.Tensor):
                    made[source] = Table(parameter.name, value, parameter.low)
                else:
                    made[source] = Scalar(parameter.name, value, parameter.low)
            return made[source]

        return nodes.with_parameters(self.template.node, other)

    def form(self) -> Bound:
        """The normal form of the formula as a mask."""
        structure, sources = self.template.normal_form
        values = self.values
        return Bound(shared(structure), tuple([values[source] for source in sources]))


def recalled(signature: Signature | None, scored: bool) -> Filled | None:
    """The formula remembered for functions with this signature."""
    if signature is None:
        return None
    template = _TEMPLATES.recall((signature.key, scored))
    return None if template is None else Filled(template, signature.values)


def remember(
    signature: Signature, scored: bool, node: Node, recorder: Recorder, bounds: Bounds
) -> None:
    """Keep a formula for functions with this signature, unless it depends on more than that."""
    sources: dict[int, int] = {}
    places = {place: i for i, place in enumerate(signature.places)}
    for place, parameter in recorder.captured().items():
        if place not in places:
            return
        sources[id(bounds.declared_parameter(parameter))] = places[place]
    if bounds.looked or not all(map(recorder.read_whole, recorder.parameters)):
        return
    _TEMPLATES.keep((signature.key, scored), _emptied(node, sources))


def _emptied(node: Node, sources: dict[int, int]) -> Template:
    """The formula with empty tensors, so that the memory keeps none alive."""
    empty: dict[int, torch.Tensor] = {}
    made: dict[int, Parameter] = {}

    def other(parameter: Parameter) -> Parameter:
        if not isinstance(parameter, Table):
            return parameter
        if id(parameter) not in made:
            tensor = parameter.tensor
            none = torch.empty([0] * tensor.ndim, dtype=tensor.dtype)
            made[id(parameter)] = parameter.with_tensor(empty.setdefault(id(tensor), none))
        return made[id(parameter)]

    plain = nodes.with_parameters(node, other)
    kept = {id(p): sources[id(old)] for old, p in zip(node.params, plain.params, strict=True)}
    return Template(plain, kept)
