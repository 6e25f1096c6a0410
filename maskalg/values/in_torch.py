"""Functions of torch that take expressions: `torch.log(q_idx)`, `torch.logical_and(a, b)`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch

from ..errors import no_tensor

_SAME: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((torch.add,), operator.add),
    **dict.fromkeys((torch.sub, torch.subtract), operator.sub),
    **dict.fromkeys((torch.mul, torch.multiply), operator.mul),
    **dict.fromkeys((torch.div, torch.divide, torch.true_divide), operator.truediv),
    **dict.fromkeys((torch.floor_divide,), operator.floordiv),
    **dict.fromkeys((torch.remainder,), operator.mod),
    **dict.fromkeys((torch.pow,), operator.pow),
    **dict.fromkeys((torch.neg, torch.negative), operator.neg),
    **dict.fromkeys((torch.abs, torch.absolute), operator.abs),
    **dict.fromkeys((torch.eq,), operator.eq),
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

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_in_torch(function: _Function) -> _Function:
    """The function, which torch's function of the same name becomes for expressions."""
    _SAME[getattr(torch, function.__name__)] = function
    return function


class InTorch:
    """An expression that functions of torch take where an operator or a function here is the same.

    A method of a tensor is refused, which lets Python ask the operator of the expression.
    """

    __slots__ = ()

    @classmethod
    def __torch_function__(
        cls, function: Any, types: object, given: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        same = _SAME.get(function)
        found = None if same is None or options else same(*given)
        if not isinstance(found, InTorch):  # torch.eq compares entries, not whole masks
            raise no_tensor(getattr(function, "__name__", str(function)), cls.__name__, options)
        return found
