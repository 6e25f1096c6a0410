"""Whether somebody watches operations on tensors, who must see them and not a kernel of ours.

Torch keeps private the functions that tell of its transforms and dispatch modes. They are asked
here, and in `attention.py` on the way of every call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _python_dispatch

PLAIN = (torch.Tensor, torch.nn.Parameter)


def _never(_tensor: torch.Tensor) -> bool:
    """Stands in for a function that torch no longer has; its own errors serve then."""
    return False


# Whether a tensor holds many: those of `torch.func.vmap`, and batched gradients of autograd itself.
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
    """The dispatch modes that are active; none where torch does not tell."""
    stack = getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)
    return list(stack())
