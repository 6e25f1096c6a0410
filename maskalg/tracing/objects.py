"""Objects a function captures: stand-ins whose attributes are put on symbols as they are asked for.

A stand-in is of a class derived from the object's own, so that methods, properties, `super()` and
`isinstance` work as they do. Attributes that nobody asks for, such as the other layers of a model,
cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType, SimpleNamespace, new_class
from typing import Any, Final

import torch

from ..formula.expression import Expression

# What a function finds in an object, and the name of the place where it did.
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
    """Whether `value` is an object of a class that is no library's, or a module of torch."""
    if isinstance(value, (type, ModuleType, torch.Tensor)):
        return False
    return isinstance(value, torch.nn.Module) or (
        type(value).__module__.split(".")[0] not in _LIBRARIES
    )


def standing_for(value: Any, on_symbols: OnSymbols) -> Any:
    """An object like `value` that hands out its attributes and items by way of `on_symbols`.

    `value` itself where no such class can be derived, as from an enumeration, or where the object
    is more than its attributes, as a dictionary or a tuple.
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
        # A module reads its registers itself, to find what is asked for by name.
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
