"""The choice of a backend, and the interface of backends."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, Protocol, cast

import torch

from ..errors import BackendError, MaskValueError
from .call import Call, Result
from .traits import Explained, Traits

# Each folder beside this file is a backend, under its own name.
TRAITS: Final[dict[str, Traits]] = {
    info.name: import_module(f"{__package__}.{info.name}").TRAITS
    for info in iter_modules(import_module(__package__).__path__)
    if info.ispkg
}
BACKENDS: Final = tuple(TRAITS)
_BY_DEVICE: Final = {traits.device: name for name, traits in TRAITS.items() if traits.device}


class Backend(Protocol):
    """The functions of `backend.py` in the folder of a backend."""

    def attend(self, call: Call) -> Result:
        """Output and, if wanted, lse, recorded by autograd."""

    def compute(self, call: Call, lse_wanted: bool) -> Result:
        """Output, laid out by `empty_result` or in its room, and lse if wanted; unrecorded."""

    def differentiate(
        self,
        call: Call,
        saved: tuple[torch.Tensor, torch.Tensor],
        change: tuple[torch.Tensor, torch.Tensor | None],
        tables: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """Gradients of query, key and value, laid out by `empty_gradients` or in their rooms, and
        of the tables in these slots, contiguous; each in the dtype of its tensor.

        Args:
            call: the inputs.
            saved: output and lse of the forward pass. If the call is a part, they belong to
                attention of the same queries to these keys and others, and so do the gradients.
            change: gradients of the output and of the lse, None where that was not used.
            tables: slots whose tensors want a gradient.
        """

    def explain(self, call: Call) -> Explained:
        """The choices for a call, without computing it."""


def backend_name(device: str, name: str | None) -> str:
    """The requested backend, or the one for a type of device."""
    if name is not None:
        if name not in BACKENDS:
            raise MaskValueError(
                f"backend={name!r} is not known; choose one of {', '.join(BACKENDS)}."
            )
        return name
    chosen = _BY_DEVICE.get(device)
    if chosen is None:
        raise BackendError(
            f"no backend is chosen by itself for device {device!r}. Ask for one: backend='cpu' or "
            "backend='reference' run on any device torch supports."
        )
    return chosen


@lru_cache
def backend_of(name: str) -> Backend:
    """A backend by name: `backend.py` of its folder, imported when first used."""
    return cast(Backend, import_module(f"{__package__}.{name}.backend"))
