"""Whether somebody watches operations on tensors, who must see them and not a kernel of ours.

Torch keeps private the functions that tell of its transforms and dispatch modes. They are asked
here, and in `attention.py` on the way of every call.
"""

from __future__ import annotations

import torch

PLAIN = (torch.Tensor, torch.nn.Parameter)

# Whether a tensor holds many: those of `torch.func.vmap`, and batched gradients of autograd itself.
holds_members = torch._C._functorch.is_batchedtensor
holds_gradients = torch._C._functorch.is_legacy_batchedtensor


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
