"""Whether a trace, a transform or a mode must see operations of torch in place of our kernels.

The functions that tell of torch's transforms and dispatch modes are private. They are called here,
and in `attention.py` in every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _python_dispatch

PLAIN = (torch.Tensor, torch.nn.Parameter)


def _never(_tensor: torch.Tensor) -> bool:
    """Stands in for a function that torch no longer has; torch's own errors serve then."""
    return False


# Whether a tensor stands for a batch: in `torch.func.vmap`, and in batched gradients of autograd.
_KINDS = getattr(torch._C, "_functorch", None)
holds_members = getattr(_KINDS, "is_batchedtensor", _never)
holds_gradients = getattr(_KINDS, "is_legacy_batchedtensor", _never)


def transformed() -> bool:
    """Whether a transform of `torch.func` is active."""
    return torch._C._are_functorch_transforms_active()


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


def modes() -> list[Any]:
    """The active dispatch modes; an empty list if torch does not tell."""
    stack = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)
    return list(stack())
