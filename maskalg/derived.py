"""Tables computed from others: where a document starts, from the ids of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch

from .parameters import Parameter, Table


class Derived(Table):
    """A table computed from others, and again where one of these is bound anew or written to."""

    __slots__ = ("_seen", "derive", "sources")

    _seen: tuple[tuple[int, int | None], ...]

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
        # A compiled function makes it anew in each call.
        self._seen = () if torch.compiler.is_compiling() else self._writes()

    def follow(self) -> None:
        """Compute it again, in place, if one of the others was written to since.

        A CUDA graph computes it in each replay. What was bound in its place stays until a write.
        """
        now = self._writes()
        moved = [place for place, _ in now] != [place for place, _ in self._seen]
        unwritten = now == self._seen and all(writes is not None for _, writes in now)
        capturing = self.tensor.is_cuda and torch.cuda.is_current_stream_capturing()
        if moved or (unwritten and not capturing):
            self._seen = now  # a copy of all is as good as they were
            return
        with torch.inference_mode(self.tensor.is_inference()):
            self.tensor.copy_(self.derive(*[source.tensor for source in self.sources]))
        self._seen = now

    def _writes(self) -> tuple[tuple[int, int | None], ...]:
        """The other tensors, and how often each was written to; None where nobody counts."""
        tensors = [source.tensor for source in self.sources]
        return tuple((id(t), None if t.is_inference() else t._version) for t in tensors)


def follow(parameters: Iterable[Parameter]) -> None:
    """Let what is derived follow what was written into its sources."""
    for parameter in parameters:
        if isinstance(parameter, Derived):
            parameter.follow()


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
