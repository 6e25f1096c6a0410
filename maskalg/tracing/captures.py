"""A function's captures, put on symbols: closure cells, globals, defaults, attributes.

The function is rebuilt, and so are the functions it calls, with a symbol in place of each number
and tensor; the original is not touched.

An object is replaced by a stand-in of a class derived from its own, so that methods, properties,
`super()` and `isinstance` work as they do. An attribute becomes a symbol when it is read, so the
other layers of a model cost nothing.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterator
from types import (
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    new_class,
)
from typing import Any, Final, cast

import torch

from ..formula.expression import Expression
from ..formula.parameters import INT32_MAX
from .recorder import BUILTINS, Key, Recorder, Symbol

# (an attribute or item of an object, its name) -> the same on symbols.
OnSymbols = Callable[[Any, str], Any]

# Python's own values, and objects of libraries that trace as they are.
_LIBRARIES: Final = ("builtins", "torch", "maskalg", "numpy")
_REGISTRIES: Final = ("_parameters", "_buffers", "_modules")


def is_called(value: object) -> bool:
    """Whether `value` is an object that a Python method makes callable."""
    if isinstance(value, (type, ModuleType, Expression)) or not callable(value):
        return False
    return isinstance(value, torch.nn.Module) or isinstance(type(value).__call__, FunctionType)


def has_attributes(value: object) -> bool:
    """Whether `value` is an `nn.Module`, or an object of a class outside `_LIBRARIES`."""
    if isinstance(value, (type, ModuleType, torch.Tensor)):
        return False
    return isinstance(value, torch.nn.Module) or (
        type(value).__module__.split(".")[0] not in _LIBRARIES
    )


def standing_for(value: Any, on_symbols: OnSymbols) -> Any:
    """An object like `value` whose attributes and items pass through `on_symbols`.

    It is `value` itself where no class can be derived, as from an enumeration, or where the object
    is more than its attributes, as a dictionary or a tuple is.
    """
    kind = type(value)
    plain = SimpleNamespace if isinstance(value, SimpleNamespace) else object
    try:
        derived = new_class(
            kind.__name__, (kind,), exec_body=lambda body: body.update(_body(kind, on_symbols))
        )
        other: Any = plain.__new__(derived)
        for name in _slots(kind):
            if name in dir(value):
                object.__setattr__(other, name, object.__getattribute__(value, name))
        vars(other).update(getattr(value, "__dict__", {}))
    except (TypeError, AttributeError):
        return value
    return other


def _body(kind: Any, on_symbols: OnSymbols) -> dict[str, Any]:
    """Methods of a stand-in's class that differ from those of the object's class."""

    def asked(self: Any, name: str) -> Any:
        try:
            found = kind.__getattribute__(self, name)
        except AttributeError:
            if not callable(getattr(kind, "__getattr__", None)):
                raise
            found = kind.__getattr__(self, name)
        # An nn.Module finds its parameters in these dictionaries itself.
        of_python = name.startswith("__") and name.endswith("__")
        if of_python or (name in _REGISTRIES and isinstance(self, torch.nn.Module)):
            return found
        if isinstance(found, MethodType) and found.__self__ is self:
            return MethodType(on_symbols(found.__func__, name), self)
        return on_symbols(found, name)

    def item(self: Any, place: Any) -> Any:
        found = kind.__getitem__(self, place)
        return on_symbols(found, str(place))

    def items(self: Any) -> Iterator[Any]:
        for place, found in enumerate(kind.__iter__(self)):
            yield on_symbols(found, str(place))

    def call(self: Any, *args: Any, **named: Any) -> Any:
        return on_symbols(kind.__call__, "call")(self, *args, **named)

    body: dict[str, Any] = {"__getattribute__": asked, "__module__": kind.__module__}
    own: dict[str, Callable[..., Any]] = {"__getitem__": item, "__iter__": items, "__call__": call}
    for name, method in own.items():
        if isinstance(getattr(kind, name, None), FunctionType):
            body[name] = method
    return body


def _slots(kind: type) -> Iterator[str]:
    for part in kind.__mro__:
        slots = vars(part).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield name


# Longer lists and tuples are data; their numbers are constants.
LONGEST: Final = 16


class Captures:
    """Rebuilds functions on the symbols of a recorder.

    Args:
        constants: places of values that stay plain, because Python itself needs them. `None` means
            that all numbers stay plain.
    """

    def __init__(self, recorder: Recorder, constants: frozenset[Key] | None) -> None:
        self._recorder = recorder
        self._constants = constants
        self._functions: dict[int, object] = {}
        self._cells: dict[int, CellType] = {}
        # Keeps bound methods and results of properties, so that no other object gets their `id`.
        self._alive: list[object] = []

    def rebuilt(self, value: Any, name: str, key: Key) -> Any:
        """`value`, found at the place `key`, with symbols for the numbers and tensors it holds."""
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
        if isinstance(value, numbers.Integral) and abs(int(value)) > INT32_MAX:
            return int(value)  # numbers that can be bound fit 32 bits, constants need not
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
        # Entered before its globals are rebuilt: a function may call itself.
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
    """Whether a function is the user's, so that its globals are captured too."""
    return not (function.__module__ or "").startswith(("torch.", "maskalg."))


def default_names(function: FunctionType) -> tuple[str, ...]:
    """Names of the arguments that have defaults, in order."""
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
    """The name of a function in messages."""
    inner = function.func if isinstance(function, functools.partial) else function
    return cast(str, getattr(inner, "__name__", type(inner).__name__))
