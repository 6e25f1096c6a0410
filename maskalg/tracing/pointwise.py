"""FlexAttention's functions, evaluated at many indices at once, and its block masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from ..errors import MaskTypeError
from ..values.algebra import Mask
from ..values.masks.block_table import block_table
from . import messages
from .captures import name_of
from .memory import signature_of
from .recorder import NoRandomness

_ASKS_PYTHON: Final = ("data-dependent control flow", ".item() on a Tensor")
"""In messages of `torch.vmap` where Python asks for the value of an index, as in an `if`: then the
function gets one pair at a time."""


class _Lookups(TorchFunctionMode):
    """Lets `tensor[index]` work inside `vmap`, where an index has no single value."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not torch.Tensor.__getitem__:
            return func(*args, **(kwargs or {}))
        tensor = args[0]
        places = args[1] if isinstance(args[1], tuple) else (args[1],)
        plain = all(isinstance(place, (int, torch.Tensor)) for place in places)
        if not plain or not any(isinstance(place, torch.Tensor) for place in places):
            return func(*args)
        device = tensor.device
        indices = [
            place if isinstance(place, torch.Tensor) else torch.tensor(place, device=device)
            for place in places
        ]
        return torch.ops.aten.index(tensor, indices)


class Opaque:
    """A function taken as it is: printed by its name, equal to itself only.

    Results of `flags` are truth values.
    """

    def __init__(self, function: Callable[..., Any], *, flags: bool) -> None:
        self.function, self.flags = function, flags

    def __str__(self) -> str:
        return f"{name_of(self.function)}_{id(self.function):x}"

    def __call__(self, *arguments: torch.Tensor) -> torch.Tensor:
        found = pointwise(self.function, *arguments)
        return found != 0 if self.flags and found.dtype != torch.bool else found


def pointwise(function: Callable[..., Any], *arguments: torch.Tensor) -> torch.Tensor:
    """The result for each element of the broadcast arguments.

    The function gets 0-d tensors, as from FlexAttention. A result that is the same for all elements
    is broadcast. Functions that `torch.vmap` takes are called once; others, such as those with an
    `if` of an index, once for each element, which takes about 10 µs.
    """
    broadcast = torch.broadcast_tensors(*arguments)
    shape = broadcast[0].shape
    if not shape.numel():
        return torch.as_tensor(function(*[a.new_zeros(()) for a in arguments])).expand(shape)
    flat = [argument.reshape(-1) for argument in broadcast]

    def single(*values: torch.Tensor) -> torch.Tensor:
        found = function(*values)
        if found is None:
            raise MaskTypeError(f"{name_of(function)} returns None: a `return` is missing.")
        return torch.as_tensor(found, device=flat[0].device)

    try:
        with _Lookups():
            result: torch.Tensor = torch.vmap(single)(*flat)
    except RuntimeError as reason:
        if "called random operation" in str(reason):
            raise messages.traced_random(name_of(function)) from None
        if not any(text in str(reason) for text in _ASKS_PYTHON):
            raise
        with NoRandomness():  # type: ignore[no-untyped-call]
            result = torch.stack([single(*values) for values in zip(*flat, strict=True)])
    return result.reshape(shape)


def requires_gradient(score_mod: Callable[..., Any]) -> bool:
    """Whether a score function captures a tensor that requires a gradient: found among what it
    captures, or tried at position 0 where that reaches objects."""
    signature = signature_of(score_mod)
    if signature is not None:
        return any(isinstance(v, torch.Tensor) and v.requires_grad for v in signature.values)
    zero = torch.zeros((), dtype=torch.int64)
    try:
        with torch.enable_grad(), _Lookups():
            return bool(torch.as_tensor(score_mod(zero.float(), *[zero] * 4)).requires_grad)
    except Exception:  # raised again where the function is evaluated
        return False


def is_block_mask(found: object) -> bool:
    """Compares the name of the type, so that FlexAttention need not be imported."""
    return type(found).__name__ == "BlockMask"


def of_block_mask(found: Any, mask: Callable[[Any], Mask]) -> Mask:
    """The mask of a `BlockMask`; `mask` traces its function."""
    block: tuple[int, int] = found.BLOCK_SIZE
    columns = max(found.kv_indices.shape[-1], -(-found.seq_lengths[1] // block[1]))
    partial = block_table.from_kv_indices(
        found.kv_indices, block, columns=columns, kv_num_blocks=found.kv_num_blocks
    )
    kept = partial & mask(found.mask_mod)
    if found.full_kv_indices is None:
        return kept
    return kept | block_table.from_kv_indices(
        found.full_kv_indices, block, columns=columns, kv_num_blocks=found.full_kv_num_blocks
    )
