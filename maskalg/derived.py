"""Tables computed from others: where a document starts, from the ids of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch

from .parameters import Parameter, Table


class Derived(Table):
    """A table computed from others, and computed again where one of these is bound anew.

    What is written into the others in place is not seen: bind them.
    """

    __slots__ = ("derive", "sources")

    def __init__(
        self,
        name: str,
        sources: tuple[Table, ...],
        derive: Callable[..., torch.Tensor],
        tensor: torch.Tensor | None = None,
    ) -> None:
        if tensor is None:
            tensor = derive(*[source.tensor for source in sources])
        super().__init__(name, tensor)
        self.sources = sources
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
        sources = tuple(cast(Table, found.get(id(source), source)) for source in parameter.sources)
        if given is not None or sources != parameter.sources:
            tensor = given.tensor if isinstance(given, Table) else None
            found[id(parameter)] = Derived(parameter.name, sources, parameter.derive, tensor)
    return found
