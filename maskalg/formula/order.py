"""Checks of the declared order of a table's entries, made where the entries lie."""

from __future__ import annotations

import torch

from . import messages
from .entries import readable
from .parameters import Order


def lies_in(order: Order, entries: torch.Tensor) -> torch.Tensor:
    """Whether the entries of each row of `[…, length]` lie so, a bool `[]` on their device."""
    if order == "ascending":
        return (entries[..., 1:] >= entries[..., :-1]).all()
    # Contiguous ones form as many runs as there are different ones in the row.
    return (_changes(entries) == _changes(entries.sort(dim=-1).values)).all()


def check(call: str, name: str, entries: torch.Tensor, order: Order | None) -> None:
    """Refuse entries on the CPU that do not lie in the declared order; others are not waited for.

    Raises:
        ValueError: entries of another order.
    """
    if order is not None and readable(entries) and not bool(lies_in(order, entries)):
        raise messages.out_of_order(call, name, order)


def ensure(name: str, entries: torch.Tensor, order: Order) -> None:
    """Refuse entries of another order wherever they are, before anything is made of them.

    An NVIDIA GPU looks by itself, nobody waits for it, and a CUDA graph looks at each replay; its
    error comes where the device is waited for. Elsewhere such an assertion would be left out.
    """
    if entries.device.type == "cpu":
        check("attention", name, entries, order)
    elif entries.is_cuda and torch.version.hip is None:
        torch._assert_async(lies_in(order, entries), str(messages.out_of_order("", name, order)))
    elif not bool(lies_in(order, entries)):
        raise messages.out_of_order("attention", name, order)


def _changes(entries: torch.Tensor) -> torch.Tensor:
    """How often neighbours differ in each row."""
    return (entries[..., 1:] != entries[..., :-1]).sum(dim=-1)
