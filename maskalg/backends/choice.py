"""Which backend serves a call, and what each of them offers."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import torch

from . import messages
from .call import Call, Result

BACKENDS = ("triton", "cpu", "reference")
_BY_DEVICE: Final = {"cpu": "cpu", "cuda": "triton"}


class Backend(Protocol):
    """What the module of a backend has."""

    def attend(self, call: Call) -> Result:
        """Output and, where wanted, lse, with what autograd needs recorded."""

    def compute(self, call: Call, lse_wanted: bool) -> Result:
        """Output as of `empty_result`, and lse where wanted; nothing is recorded."""

    def differentiate(
        self,
        call: Call,
        saved: tuple[torch.Tensor, torch.Tensor],
        change: tuple[torch.Tensor, torch.Tensor | None],
        tables: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """Gradients of query, key and value as of `empty_gradients`, and of the tables in these
        slots, contiguous; each in the dtype of its tensor.

        Args:
            call: the inputs.
            saved: output and lse of the forward pass.
            change: gradients of the output and of the lse, None where that was not used.
            tables: slots whose tensors want a gradient.
        """


def backend_name(device: str, name: str | None) -> str:
    """The backend that was asked for, or the one of a type of device."""
    if name is not None:
        if name not in BACKENDS:
            raise messages.unknown_backend(name, list(BACKENDS))
        return name
    chosen = _BY_DEVICE.get(device)
    if chosen is None:
        raise messages.no_backend_for(device)
    return chosen


@lru_cache
def backend_of(name: str) -> Backend:
    """A backend by name; its module is imported when first used."""
    if name == "triton":
        from .triton import backend as triton

        return triton
    if name == "cpu":
        from .cpu import backend as cpu

        return cpu
    from . import reference

    return reference
