"""Tables of packed segments as operators of torch, of one operation each.

Every small operation that makes such a table takes the host as long as a kernel that makes all of
it. The GPU backend, once it is loaded, has kernels for them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ....formula.watched import watched


def define(name: str, schema: str, by_torch: Callable[..., torch.Tensor]) -> None:
    """An operator that operations of torch compute where there is no kernel."""
    torch.library.define(name, schema)
    torch.library.impl(name, "CompositeExplicitAutograd", by_torch)


def served(where: torch.device, *tensors: torch.Tensor) -> bool:
    """Whether tensors lie on the GPU of the result, and nobody watches operations."""
    if where.type != "cuda" or watched(*tensors):
        return False
    here = tensors[0].device
    alike = all(tensor.device == here for tensor in tensors)
    return alike and here.type == "cuda" and where.index in (here.index, None)
