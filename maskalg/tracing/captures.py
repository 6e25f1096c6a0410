"""What a function closes over, put on symbols: closure cells, globals, defaults, attributes.

The function is rebuilt, and so are the functions it calls, with a symbol in place of each number
and tensor; the original is not touched.
"""

from __future__ import annotations

import copy
import functools
import math
import numbers
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, cast

import torch

from .recorder import BUILTINS, Key, Recorder

# Longer lists and tuples are data; their numbers are constants.
LONGEST: Final = 16


class Captures:
    """Rebuilds functions on the symbols of a recorder.

    Args:
        constants: places whose value Python itself needs; they keep it. `None` is every number.
    """

    def __init__(self, recorder: Recorder, constants: frozenset[Key] | None) -> None:
        self._recorder = recorder
        self._constants = constants
        self._functions: dict[int, object] = {}
        self._cells: dict[int, CellType] = {}

    def rebuilt(self, value: Any, name: str, key: Key) -> Any:
        """`value`, found at the place `key`, on symbols; itself where it holds none."""
        if isinstance(value, bool):
            return value
        if isinstance(value, torch.Tensor):
            fixed = self._constants is not None and ("tensor", id(value)) in self._constants
            return value if fixed else self._recorder.tensor(name, value)
        if isinstance(value, numbers.Real):
            return self._number(value, name, key)
        if type(value) in (list, tuple) and len(value) <= LONGEST:
            items = enumerate(value)
            return type(value)([self.rebuilt(v, f"{name}_{i}", (*key, i)) for i, v in items])
        if type(value) is dict and len(value) <= LONGEST:
            return {k: self.rebuilt(v, f"{name}_{k}", (*key, k)) for k, v in value.items()}
        if isinstance(value, (FunctionType, MethodType, functools.partial)) or _is_callable(value):
            return self._callable(value)
        return value

    def _number(self, value: numbers.Real, name: str, key: Key) -> Any:
        if self._constants is None or key in self._constants or not math.isfinite(value):
            return value
        plain = int(value) if isinstance(value, numbers.Integral) else float(value)
        return self._recorder.number(name, plain, key)

    def _callable(self, value: Any) -> Any:
        if id(value) not in self._functions:
            if isinstance(value, FunctionType):
                return self._function(value)
            if isinstance(value, functools.partial):
                arguments = self.rebuilt(value.args, "argument", ("partial", id(value)))
                named = {
                    name: self.rebuilt(arg, name, ("partial", id(value), name))
                    for name, arg in value.keywords.items()
                }
                whole: Any = functools.partial(self._callable(value.func), *arguments, **named)
            elif isinstance(value, MethodType):
                whole = MethodType(self._callable(value.__func__), self._object(value.__self__))
            else:
                whole = self._called_object(value)
            self._functions[id(value)] = whole
        return self._functions[id(value)]

    def _called_object(self, value: Any) -> Any:
        method = type(value).forward if isinstance(value, torch.nn.Module) else type(value).__call__
        if not isinstance(method, FunctionType):
            return value
        return MethodType(self._function(method), self._object(value))

    def _object(self, value: Any) -> Any:
        """A copy of an object whose numbers and tensors are symbols."""
        attributes = _attributes(value)
        if not attributes:
            return value
        other = copy.copy(value)
        for name, attribute in attributes.items():
            symbol = self.rebuilt(attribute, name, ("attribute", id(value), name))
            if symbol is not attribute:
                other.__dict__[name] = symbol
        return other

    def _function(self, function: FunctionType) -> Any:
        known = self._functions.get(id(function))
        if known is not None:
            return known
        ours = is_ours(function)
        if not ours and function.__closure__ is None:
            return function
        scope = dict(function.__globals__) if ours else function.__globals__
        cells = tuple(
            self._cell(cell, name)
            for cell, name in zip(
                function.__closure__ or (), function.__code__.co_freevars, strict=True
            )
        )
        other = FunctionType(function.__code__, scope, function.__name__, None, cells)
        # Known before its globals are: a function may call itself.
        self._functions[id(function)] = other
        key: Key = ("default", id(function))
        if function.__defaults__:
            given = zip(function.__defaults__, default_names(function), strict=True)
            other.__defaults__ = tuple(
                self.rebuilt(value, name, (*key, name)) for value, name in given
            )
        if function.__kwdefaults__:
            other.__kwdefaults__ = {
                name: self.rebuilt(value, name, (*key, name))
                for name, value in function.__kwdefaults__.items()
            }
        if ours:
            for name in set(names(function.__code__)) & set(scope):
                place = ("global", id(function.__globals__), name)
                scope[name] = self.rebuilt(scope[name], name, place)
            for name, answer in BUILTINS.items():
                scope.setdefault(name, answer)
        return other

    def _cell(self, cell: CellType, name: str) -> CellType:
        if id(cell) not in self._cells:
            other = self._cells[id(cell)] = CellType()
            try:
                contents = cell.cell_contents
            except ValueError:  # not bound yet
                return other
            other.cell_contents = self.rebuilt(contents, name, ("cell", id(cell)))
        return self._cells[id(cell)]


def _is_callable(value: object) -> bool:
    """Whether `value` is an object that a Python method makes callable."""
    if isinstance(value, type) or not callable(value):
        return False
    return isinstance(value, torch.nn.Module) or isinstance(type(value).__call__, FunctionType)


def _attributes(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(value, torch.nn.Module):
        found.update({**value._parameters, **value._buffers, **value._modules})
        own = {name: v for name, v in vars(value).items() if not name.startswith("_")}
        return {**found, **{n: v for n, v in own.items() if n != "training"}}
    return dict(getattr(value, "__dict__", {}))


def is_ours(function: FunctionType) -> bool:
    """Whether a function is of no library that traces as it is, so that its globals count."""
    return not (function.__module__ or "").startswith(("torch.", "maskalg."))


def default_names(function: FunctionType) -> tuple[str, ...]:
    """Names of the arguments that have defaults, in the order of these."""
    code = function.__code__
    count = len(function.__defaults__ or ())
    return code.co_varnames[code.co_argcount - count : code.co_argcount]


def names(code: CodeType) -> Iterator[str]:
    """Names a function may look up among its globals, those of inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)


def name_of(function: Callable[..., Any]) -> str:
    """How messages call a function."""
    inner = function.func if isinstance(function, functools.partial) else function
    return cast(str, getattr(inner, "__name__", type(inner).__name__))
