"""A function's captures, put on symbols: closure cells, globals, defaults, attributes.

The function is rebuilt, and so are the functions it calls, with a symbol in place of each number
and tensor; the original is not touched.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final, cast

import torch

from .objects import has_attributes, is_called, standing_for
from .recorder import BUILTINS, Key, Recorder, Symbol

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
        # Bound methods and what properties return: another could take the place of one let go.
        self._alive: list[object] = []

    def rebuilt(self, value: Any, name: str, key: Key) -> Any:
        """`value`, found at the place `key`, on symbols; itself where it holds none."""
        if isinstance(value, bool) or type(value) is Symbol:
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
        if isinstance(value, (FunctionType, MethodType, functools.partial)):
            return self._callable(value, name, key)
        if is_called(value) or (self._constants is not None and has_attributes(value)):
            return self._object(value, name, key)
        return value

    def _number(self, value: numbers.Real, name: str, key: Key) -> Any:
        if self._constants is None or key in self._constants or not math.isfinite(value):
            return value
        plain = int(value) if isinstance(value, numbers.Integral) else float(value)
        return self._recorder.number(name, plain, key)

    def _callable(self, value: Any, name: str, key: Key) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value)
        if id(value) not in self._functions:
            if isinstance(value, functools.partial):
                arguments = self.rebuilt(value.args, "argument", ("partial", id(value)))
                named = {
                    name: self.rebuilt(arg, name, ("partial", id(value), name))
                    for name, arg in value.keywords.items()
                }
                function = self.rebuilt(value.func, name, (*key, "func"))
                whole: Any = functools.partial(function, *arguments, **named)
            else:
                owner = self.rebuilt(value.__self__, name, (*key, "self"))
                whole = MethodType(self.rebuilt(value.__func__, name, key), owner)
            self._functions[id(value)] = whole
            self._alive.append(value)
        return self._functions[id(value)]

    def _object(self, value: Any, name: str, key: Key) -> Any:
        """A stand-in for an object whose numbers and tensors are symbols."""
        if id(value) in self._functions:
            return self._functions[id(value)]

        def on_symbols(found: Any, own: str) -> Any:
            # An item of a list of modules has no name of its own.
            inner = key[0] == "attribute" or own.isdigit()
            place = key if key[0] == "attribute" else ("attribute", *key)
            return self.rebuilt(found, f"{name}_{own}" if inner else own, (*place, own))

        other = standing_for(value, on_symbols)
        self._functions[id(value)] = self._functions[id(other)] = other
        self._alive += (value, other)
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
