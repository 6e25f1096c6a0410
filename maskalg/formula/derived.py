"""Tables computed from others, such as ids of documents from lengths, and facts about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Final, NamedTuple, cast

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import MaskValueError
from .parameters import Parameter, Table


class Derived(Table):
    """A table computed from others, and again when one of them is bound anew or written to."""

    __slots__ = ("_seen", "_streams", "derive", "fixed", "sources")

    _seen: tuple[tuple[int, int | None], ...]
    _streams: set[int] | None  # CUDA streams it was computed on since the last write; None is all

    def __init__(
        self,
        name: str,
        sources: tuple[Table, ...],
        derive: Callable[..., torch.Tensor],
        tensor: torch.Tensor | None = None,
    ) -> None:
        self.sources = sources
        self.derive = derive
        self.fixed = tensor is not None  # bound by itself: it stays until a source is written to
        super().__init__(name, self._derived() if tensor is None else tensor)
        # A compiled function makes it anew in each call.
        self._seen = () if torch.compiler.is_compiling() else self._writes()
        self._streams = None

    def follow(self) -> None:
        """Compute it again, in place, if one of its sources was written to since.

        A CUDA graph computes it in each replay. A tensor that `bind` put in its place stays until a
        source is written to.
        """
        now = self._writes()
        moved = self.fixed and [at for at, _ in now] != [at for at, _ in self._seen]
        if moved:
            self._seen = now  # copied with its sources
            return
        on_gpu = self.tensor.is_cuda
        if on_gpu and torch.cuda.is_current_stream_capturing():
            self._fill()
            return
        stream = torch.cuda.current_stream(self.tensor.device).cuda_stream if on_gpu else 0
        if now == self._seen and all(writes is not None for _, writes in now):
            if self._streams is not None and stream not in self._streams:
                self._fill()
                self._streams.add(stream)
            return
        with torch.inference_mode(self.tensor.is_inference()):
            self.tensor.copy_(self._derived())
        self._seen, self._streams, self.fixed = now, {stream}, False

    def now(self) -> torch.Tensor:
        """The table as a compiled function reads it: computed in its graph, in each call.

        One that was made in this graph is there already, for all layers.
        """
        if self.fixed or not self._seen:
            return self.tensor
        return self.derive(*[source.tensor for source in self.sources])

    def _fill(self) -> None:
        """Compute it again unseen by autograd: entries stay the same, or a CUDA graph writes."""
        self.tensor.data.copy_(self._derived())

    def _derived(self) -> torch.Tensor:
        """The table, computed; an inference tensor, without a count of writes, if a source is."""
        tensors = [source.tensor for source in self.sources]
        if torch.compiler.is_compiling() or not any(t.is_inference() for t in tensors):
            return self.derive(*tensors)
        with torch.inference_mode():
            return self.derive(*tensors)

    def _writes(self) -> tuple[tuple[int, int | None], ...]:
        """The `id` of each source, and how often it was written to: None for inference tensors."""
        tensors = [source.tensor for source in self.sources]
        return tuple((id(t), None if t.is_inference() else t._version) for t in tensors)


def follow(parameters: Iterable[Parameter]) -> None:
    """Compute derived tables again whose sources were written to."""
    for parameter in parameters:
        if isinstance(parameter, Derived):
            parameter.follow()


def with_derived(
    parameters: Iterable[Parameter], replacement: dict[Parameter, Parameter]
) -> dict[Parameter, Parameter]:
    """`replacement`, extended by new tables for those derived from replaced ones."""
    found = dict(replacement)
    for parameter in parameters:
        given = found.get(parameter)
        if not isinstance(parameter, Derived) or isinstance(given, Derived):
            continue
        sources = tuple(cast(Table, found.get(source, source)) for source in parameter.sources)
        if given is not None or sources != parameter.sources:
            tensor = given.tensor if isinstance(given, Table) else None
            found[parameter] = Derived(parameter.name, sources, parameter.derive, tensor)
    return found


class Documents(NamedTuple):
    """Facts about the documents that ids were made of.

    Attributes:
        number: the number of documents; the largest of several packings.
        keys: the length of a token's document and of the documents it continues, the mean over all
            tokens; None if not known, as for lengths on a GPU.
        related: tokens of a token's document, of those it continues and of those that continue it:
            the most and the mean over all tokens; likewise.
    """

    number: int
    keys: float | None
    related: tuple[int, float] | None


_DOCUMENTS: Final[MutableMapping[torch.Tensor, Documents]] = WeakIdKeyDictionary()


def note_documents(
    ids: torch.Tensor,
    number: int,
    keys: float | None = None,
    related: tuple[int, float] | None = None,
) -> None:
    """Remember the documents that `ids` were made of, as long as the tensor lives."""
    _DOCUMENTS[ids] = Documents(number, keys, related)


def on_device(ids: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """`ids` on a device, with the documents noted for them."""
    if ids.is_meta and torch.device(device).type != "meta":
        raise MaskValueError(
            "a tensor of the expression lives on meta, where tensors have no entries. Build the "
            f"expression anew on {torch.device(device)}."
        )
    there = ids.to(device)
    if not torch.compiler.is_compiling() and (known := _DOCUMENTS.get(ids)) is not None:
        _DOCUMENTS[there] = known
    return there


def documents_in(ids: torch.Tensor) -> Documents | None:
    """The documents noted for `ids`; None for other ids, whose entries would have to be read."""
    return _DOCUMENTS.get(ids)
