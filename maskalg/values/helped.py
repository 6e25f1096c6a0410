"""The text that `help` prints for public values such as `q_idx`, in place of their class."""

from __future__ import annotations

from inspect import isfunction
from typing import TypeVar

from ..errors import told

_T = TypeVar("_T")


def helped(value: _T, says: str) -> _T:
    """The value; `help` prints `says` for it, and names the class that lists its methods."""
    kind = type(value)
    public = "type(maskalg.q_idx)" if kind.__name__ == "Index" else f"maskalg.{kind.__name__}"
    says += f"\n\n`help({public})` lists its operators and methods."
    object.__setattr__(value, "__doc__", says)
    return value


class Ways:
    """A mask with several constructors, such as `document(ids)` and `document.from_lengths`.

    The class has the name that users write, since `help` lists its methods.
    """

    __slots__ = ()

    def __init_subclass__(cls, *, name: str) -> None:
        cls.__name__ = cls.__qualname__ = name
        for way, function in list(vars(cls).items()):
            if isfunction(function) and (way == "__call__" or not way.startswith("_")):
                called = name if way == "__call__" else f"{name}.{way}"
                function.__qualname__ = f"maskalg.{called}"
                setattr(cls, way, told(function))

    def __repr__(self) -> str:
        return f"maskalg.{type(self).__name__}"

    def __reduce__(self) -> str:
        return type(self).__name__
