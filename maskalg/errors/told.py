"""Calls of a method with arguments that it does not have, told in our words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar, cast

from .kinds import MaskTypeError
from .strangers import near

_Method = TypeVar("_Method", bound=Callable[..., Any])

_COUNTS: Final = frozenset(("batch", "heads"))
_CHOICES: Final = frozenset(("entry", "head"))


def told(method: _Method) -> _Method:
    """`method`, which raises `MaskTypeError` where a call does not fit its signature."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except TypeError as problem:
            inner = problem.__traceback__ and problem.__traceback__.tb_next
            if inner is not None:  # raised within the method
                raise
            raise _misfit(method, problem, named) from None

    return cast(_Method, call)


def _misfit(
    method: Callable[..., Any], problem: TypeError, named: dict[str, object]
) -> MaskTypeError:
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    known = [p.name for p in parameters]
    unknown = [name for name in named if name not in known]
    hint = "".join(near(name, known) for name in unknown)
    if _COUNTS & set(unknown) and set(known) >= _CHOICES:
        hint = (
            " `batch` and `heads` are counts in every call; entry=… and head=… choose the batch "
            "entry and the head that are shown."
        )
    elif _CHOICES & set(unknown) and set(known) >= _COUNTS:
        hint = (
            " batch=… and heads=… say how many there are, and the result has all of them: choose "
            "from it, as in blocks(…).labels[entry, head]."
        )
    listed = ", ".join(p.name if p.default is p.empty else f"{p.name}=…" for p in parameters)
    said = str(problem).split(".", 1)[-1]
    return MaskTypeError(f"{said}. It takes {listed}.{hint}")
