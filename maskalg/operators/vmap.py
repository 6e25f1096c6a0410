"""`torch.func.vmap` of the operators: the new dimension joins the batch.

Where the expression reads the batch, or has a tensor of its own for each member, members are
computed one after the other.
"""

from __future__ import annotations

from typing import Any

import torch

from ..engine.keys import structure_of
from .define import BACKWARD, FORWARD
from .float8 import FLOAT8_FORWARD


def _forward(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    structure, lse_wanted = args[4], args[9]
    operator = torch.ops.maskalg.attention_forward
    if _batched(in_dims[3]) or structure_of(structure).depends_on("batch"):
        return _one_by_one(operator, info.batch_size, in_dims, args)
    inputs = [_folded(args[i], in_dims[i], info.batch_size) for i in range(3)]
    out, lse = operator(*inputs, *args[3:])
    if lse_wanted:
        lse = _unfolded(lse, info.batch_size)
    return (_unfolded(out, info.batch_size), lse), (0, 0 if lse_wanted else None)


def _backward(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    structure, wanted = args[8], args[13]
    operator = torch.ops.maskalg.attention_backward
    if any(wanted) or _batched(in_dims[3]) or structure_of(structure).depends_on("batch"):
        return _one_by_one(operator, info.batch_size, in_dims, args)
    tensors = [
        args[i] if i == 3 or args[i] is None else _folded(args[i], in_dims[i], info.batch_size)
        for i in range(8)
    ]
    found = operator(*tensors, *args[8:])
    return [_unfolded(gradient, info.batch_size) for gradient in found], [0] * len(found)


def _float8(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    operator = torch.ops.maskalg.attention_float8
    return _one_by_one(operator, info.batch_size, in_dims, args)


def _one_by_one(
    operator: Any, members: int, in_dims: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, Any]:
    results = [
        operator(*[_member(arg, dim, i) for arg, dim in zip(args, in_dims, strict=True)])
        for i in range(members)
    ]
    stacked = [torch.stack(parts) for parts in zip(*results, strict=True)]
    return type(results[0])(stacked), type(results[0])([0] * len(stacked))


def _member(arg: Any, dim: Any, i: int) -> Any:
    if isinstance(arg, (list, tuple)) and isinstance(dim, (list, tuple)):
        return [_member(part, d, i) for part, d in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, i)


def _batched(dims: list[int | None]) -> bool:
    return any(dim is not None for dim in dims)


def _folded(tensor: torch.Tensor, dim: int | None, members: int) -> torch.Tensor:
    """`[members, batch, …]` as `[members * batch, …]`; a tensor they share is repeated."""
    whole = tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return whole.flatten(0, 1)


def _unfolded(tensor: torch.Tensor, members: int) -> torch.Tensor:
    return tensor.view(members, tensor.shape[0] // members, *tensor.shape[1:])


torch.library.register_vmap(FORWARD, _forward)
torch.library.register_vmap(BACKWARD, _backward)
torch.library.register_vmap(FLOAT8_FORWARD, _float8)
