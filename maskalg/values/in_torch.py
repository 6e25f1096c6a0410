"""Functions of torch that take expressions: `torch.log(q_idx)`, `torch.logical_and(a, b)`.

Functions of NumPy do not: their results would be arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
import torch

from ..errors import no_array, no_tensor

_SAME: Final[dict[Any, Callable[..., Any]]] = {
    torch.add: operator.add,
    **dict.fromkeys((torch.sub, torch.subtract), operator.sub),
    **dict.fromkeys((torch.mul, torch.multiply), operator.mul),
    **dict.fromkeys((torch.div, torch.divide, torch.true_divide), operator.truediv),
    torch.floor_divide: operator.floordiv,
    torch.remainder: operator.mod,
    torch.pow: operator.pow,
    **dict.fromkeys((torch.neg, torch.negative), operator.neg),
    **dict.fromkeys((torch.abs, torch.absolute), operator.abs),
    torch.eq: operator.eq,
    **dict.fromkeys((torch.ne, torch.not_equal), operator.ne),
    **dict.fromkeys((torch.lt, torch.less), operator.lt),
    **dict.fromkeys((torch.le, torch.less_equal), operator.le),
    **dict.fromkeys((torch.gt, torch.greater), operator.gt),
    **dict.fromkeys((torch.ge, torch.greater_equal), operator.ge),
    **dict.fromkeys((torch.logical_and, torch.bitwise_and), operator.and_),
    **dict.fromkeys((torch.logical_or, torch.bitwise_or), operator.or_),
    **dict.fromkeys((torch.logical_xor, torch.bitwise_xor), operator.xor),
    **dict.fromkeys((torch.logical_not, torch.bitwise_not), operator.invert),
}

_REFLECTED: Final[dict[Any, str]] = {
    np.add: "__radd__",
    np.subtract: "__rsub__",
    np.multiply: "__rmul__",
    np.true_divide: "__rtruediv__",
    np.floor_divide: "__rfloordiv__",
    np.remainder: "__rmod__",
    np.power: "__rpow__",
    np.matmul: "__rmatmul__",
    np.bitwise_and: "__rand__",
    np.bitwise_or: "__ror__",
    np.bitwise_xor: "__rxor__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
}
"""Methods of an expression on the right of an operator, whose array NumPy asks first."""

_REGION: Final[Any] = getattr(torch._ops, "HigherOrderOperator", ())
"""The class of checkpoints and other regions of a compiled function, private in torch (2.10 to
2.15); without it they refuse expressions as arguments."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_in_torch(function: _Function) -> _Function:
    """Let torch's function of the same name call this function for expressions; returns it."""
    _SAME[getattr(torch, function.__name__)] = function
    return function


class InTorch:
    """An expression for torch's functions that have the meaning of an operator or a function here.

    Methods of a tensor are refused, so that Python asks the expression's operator instead. NumPy's
    operators reach an expression too, once for a whole array and not for each entry.
    """

    __slots__ = ()

    @classmethod
    def __torch_function__(
        cls, function: Any, types: object, given: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        if isinstance(function, _REGION):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*given, **options or {})
        same = _SAME.get(function)
        found = None if same is None or options else same(*given)
        if not isinstance(found, InTorch):  # torch.eq compares entries, not whole masks
            raise no_tensor(getattr(function, "__name__", str(function)), cls.__name__, options)
        return found

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        found = NotImplemented
        if method == "__call__" and function in _REFLECTED and given[1] is self and not options:
            reflected = getattr(self, _REFLECTED[function], None)
            # NumPy makes an array of its own numbers before a comparison.
            other = given[0][()] if isinstance(given[0], np.ndarray) else given[0]
            found = NotImplemented if reflected is None else reflected(other)
        if found is not NotImplemented:
            return found
        if function in (np.equal, np.not_equal) and not options:
            return function is np.not_equal
        raise no_array(function.__name__, given, options, type(self).__name__)

    def __array__(self, *_dtype: object, **_options: object) -> NoReturn:
        raise no_array("asarray", (self,), {}, type(self).__name__)

    def __array_function__(
        self, function: Any, types: object, given: tuple[Any, ...], options: dict[str, Any]
    ) -> NoReturn:
        raise no_array(function.__name__, given, options, type(self).__name__)
