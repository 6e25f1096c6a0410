"""Functions of the kernels, run as Python on numbers, from the source that the proofs read.

A stand-in for `tl` has a few functions of integers, which wrap at 32 bits and divide towards zero.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from ..meaning import NotDefined
from ..reading.triton import kernel_source
from .runs import Sources

NO_TILE: Final = 2**30


class Integer(int):
    """An integer of 32 bits, with a kernel's arithmetic."""

    def to(self, _of: object) -> Integer:
        return self


def _wrapped(value: Any) -> Any:
    return value if isinstance(value, bool) else Integer((int(value) + 2**31) % 2**32 - 2**31)


def _operation(name: str) -> Callable[..., Any]:
    return lambda self, *others: _wrapped(getattr(int, name)(self, *map(int, others)))


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "neg", "rshift", "rrshift", "lshift",
              "rlshift"):  # fmt: skip
    setattr(Integer, f"__{_name}__", _operation(f"__{_name}__"))


def _towards_zero(x: Any, c: Any) -> Integer:
    whole = abs(int(x)) // abs(int(c))
    return Integer(whole if (x < 0) == (c < 0) else -whole)


setattr(Integer, "__floordiv__", _towards_zero)  # noqa: B010  mypy knows int's signature
setattr(Integer, "__rfloordiv__", lambda self, x: _towards_zero(x, self))  # noqa: B010


@dataclass(frozen=True)
class Entries:
    """A pointer into a table of integers, `at` entries after the first."""

    of: list[int]
    at: int = 0

    def __add__(self, more: int) -> Entries:
        return Entries(self.of, self.at + int(more))


def _load(entry: Entries, mask: bool = True, other: int = 0) -> Integer:
    if mask and not 0 <= entry.at < len(entry.of):
        raise NotDefined(f"entry {entry.at} is read of a table of {len(entry.of)}")
    return Integer(entry.of[entry.at] if mask else other)


_LANGUAGE: Final = SimpleNamespace(
    where=lambda chosen, then, otherwise: _wrapped(then if chosen else otherwise),
    minimum=lambda x, y: _wrapped(min(x, y)),
    maximum=lambda x, y: _wrapped(max(x, y)),
    cast=lambda x, _of: _wrapped(x),
    load=_load,
    zeros=lambda _shape, _of: Integer(0),
    static_range=range,
    constexpr=lambda x: x,
    tensor=None, tuple=None, int32=None,
)  # fmt: skip


def functions(name: str, sources: Sources | None = None) -> dict[str, Any]:
    """The functions of a file of kernels, run as Python; `sources` has texts in place of files."""
    text = (sources or {}).get(name) or kernel_source(name)
    names: dict[str, Any] = {
        "triton": SimpleNamespace(jit=_itself), "tl": _LANGUAGE, "NamedTuple": NamedTuple,
    }  # fmt: skip
    tree = ast.parse(text)
    imports = (ast.Import, ast.ImportFrom)
    tree.body = [part for part in tree.body if not isinstance(part, imports)]
    exec(compile(tree, name, "exec"), names)
    return names


def _itself(*args: Any, **named: Any) -> Any:
    return args[0] if args else lambda function: function
