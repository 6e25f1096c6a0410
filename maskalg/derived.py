"""Tables computed from others: where a document starts, from the ids of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch

from .parameters import Parameter, Table


class Derived(Table):
    """A table computed from another one, and computed again where that one is bound anew.

    What is written into the other one in place is not seen: bind it.
    """

    __slots__ = ("derive", "source")

    def __init__(
        self,
        name: str,
        source: Table,
        derive: Callable[[torch.Tensor], torch.Tensor],
        tensor: torch.Tensor | None = None,
    ) -> None:
        super().__init__(name, derive(source.tensor) if tensor is None else tensor)
        self.source = source
        self.derive = derive


def with_derived(
    parameters: Iterable[Parameter], replacement: dict[int, Parameter]
) -> dict[int, Parameter]:
    """`replacement`, by id, and with it what is derived from tables that it replaces."""
    found = dict(replacement)
    for parameter in parameters:
        given = found.get(id(parameter))
        if not isinstance(parameter, Derived) or isinstance(given, Derived):
            continue
        source = cast(Table, found.get(id(parameter.source), parameter.source))
        if given is not None or source is not parameter.source:
            tensor = given.tensor if isinstance(given, Table) else None
            found[id(parameter)] = Derived(parameter.name, source, parameter.derive, tensor)
    return found
