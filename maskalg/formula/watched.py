"""Whether a trace, a transform or a mode must see operations of torch in place of our kernels, and
whether tensors without a device are made on the CPU.

The functions that tell of torch's transforms and dispatch modes are private. They are called here,
and in `attention.py` in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Final, TypeVar, cast

import torch
from torch.utils import _python_dispatch

from .. import errors

_Method = TypeVar("_Method", bound=Callable[..., Any])
PLAIN = (torch.Tensor, torch.nn.Parameter)


def _never(_tensor: torch.Tensor) -> bool:
    """Stands in for a function that torch no longer has; torch's own errors serve then."""
    return False


# Whether a tensor stands for a batch: in `torch.func.vmap`, and in batched gradients of autograd.
_KINDS = getattr(torch._C, "_functorch", None)
holds_members = getattr(_KINDS, "is_batchedtensor", _never)
holds_gradients = getattr(_KINDS, "is_legacy_batchedtensor", _never)

# How many modes for functions are active, of which a default device is one.
_count_of_modes = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
_HERE: Final = nullcontext()


def transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    return torch._C._are_functorch_transforms_active()


def is_one_of_many(tensor: torch.Tensor) -> bool:
    """Whether `torch.vmap` runs a function for all members of a batch at once, and `tensor` is one
    member's, so that its entries have no single value."""
    if not transformed():
        return False
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def recorded() -> bool:
    """Whether torch.jit records a trace."""
    return torch._C._is_tracing()


def watched(*tensors: torch.Tensor) -> bool:
    """Whether there is a trace (also of torch.jit), a transform of `torch.func`, a dispatch mode
    (fake tensors, selective checkpointing, counters), or a tensor of another class."""
    if torch.compiler.is_compiling() or recorded() or transformed():
        return True
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    for tensor in tensors:  # noqa: SIM110 - a generator takes longer, and every call passes here
        if type(tensor) not in PLAIN:
            return True
    return False


def on_host() -> AbstractContextManager[Any]:
    """A context in which tensors without a device are made on the CPU, for code that computes
    there, whatever `torch.set_default_device` says."""
    # To ask for the default device takes 4 µs.
    if torch.compiler.is_compiling() or _count_of_modes() == 0:
        return _HERE
    return _HERE if torch.get_default_device().type == "cpu" else torch.device("cpu")


def asked(method: _Method) -> _Method:
    """A question about an expression: `errors.told`, computed on the host."""
    told = errors.told(method)

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        with on_host():
            return told(*args, **named)

    return cast(_Method, call)


def modes() -> list[Any]:
    """The active dispatch modes; an empty list if torch does not tell."""
    stack = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)
    return list(stack())
