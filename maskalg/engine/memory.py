"""The memory of results computed from tensors, or from lengths and numbers alone.

Thirty layers share one pass over the ids of a batch, and training steps share the results that
depend on lengths alone. A result is not found any more once one of its tensors was written to, and
dropped when one ends.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import torch

from ..formula.nodes import Node
from ..formula.parameters import Slot
from .extents import Extents
from .graphs import trees_allocate
from .normal_form import Bound, Value
from .recent import Recent

Found = TypeVar("Found")
Tensors = tuple[torch.Tensor, ...]

_DECIDED_ELSEWHERE: Final = frozenset(("opaque", "member", "step"))  # by functions and tensors
_ALIGNED: Final = 16  # bytes: kernels are compiled for addresses that are multiples
_MOST_ENTRIES: Final = 1 << 18  # of a constant that is remembered
CONSTANTS: Final[Recent[Any, Tensors]] = Recent(256)


class Memory:
    """The most recently used results; each is dropped with the tensors it was made from.

    Holds at most `most` results; with `size`, results whose sizes add up to at most `most`.
    """

    def __init__(self, most: int, size: Callable[[Any], int] | None = None) -> None:
        self._known: Recent[Any, tuple[tuple[weakref.ref[torch.Tensor], ...], Any]] = Recent(
            most, None if size is None else lambda known: size(known[1])
        )

    def __len__(self) -> int:
        return len(self._known)

    def recall(
        self,
        key: tuple[Hashable, ...],
        nodes: tuple[Node, ...],
        values: tuple[Value, ...],
        make: Callable[[], Found],
    ) -> Found:
        """The result of `make` for these formulas and values, made once while the tensors live."""
        used = sorted({p.index for node in nodes for p in node.params if isinstance(p, Slot)})
        tensors: list[torch.Tensor] = []
        numbers: list[str | None] = []
        for value in [values[index] for index in used]:
            if isinstance(value, torch.Tensor):
                tensors.append(value)
                numbers.append(None)
            else:
                numbers.append(repr(value))  # 1 and 1.0 are equal, and so are 0.0 and -0.0
        skeletons = tuple([node.skeleton for node in nodes])
        return self.of_tensors((*key, skeletons, *numbers), tensors, make)

    def of_tensors(
        self, key: tuple[Hashable, ...], tensors: Sequence[torch.Tensor], make: Callable[[], Found]
    ) -> Found:
        """The result of `make` for these tensors; `key` holds all other inputs."""
        if torch.compiler.is_compiling():
            return make()
        on_gpu = not tensors and torch.cuda.is_initialized()
        if on_gpu and torch.cuda.is_current_stream_capturing():
            return make()  # a graph has memory of its own, filled when it is replayed
        whole: list[Hashable] = [*key]
        for tensor in tensors:
            stream = 0
            if tensor.is_inference():
                return make()  # writes to it are not counted
            if tensor.is_cuda:
                if torch.cuda.is_current_stream_capturing():
                    return make()  # a graph is replayed on other entries in the same memory
                stream = stream_of(tensor.device)
            whole += (id(tensor), state_of(tensor), stream)
        place = tuple(whole)
        known = self._known.recall(place)
        if known is not None:
            refs, found = known
            for ref, tensor in zip(refs, tensors, strict=True):
                if ref() is not tensor:
                    break
            else:
                return cast(Found, found)
        made = make()
        if trees_allocate():
            return made

        def forget(_: object) -> None:
            self._known.pop(place, None)

        forget(None)  # the kept results are of tensors that ended
        self._known.keep(place, (tuple([weakref.ref(t, forget) for t in tensors]), made))
        return made


MEMORY: Final = Memory(192)


def constant(
    key: tuple[Hashable, ...], device: torch.device, make: Callable[[], Tensors]
) -> Tensors:
    """The tensors that `make` returns for this key, which holds all of its inputs.

    Labels from summaries are made anew for every new tensor, in each training step or in each layer
    of a routing model; most of their other inputs stay the same.
    """
    watched = torch._C._len_torch_dispatch_stack() > 0 or torch.compiler.is_compiling()
    if captured(device) or watched:
        return make()  # the memory of a graph is its own, and so are tensors of other classes
    whole = (*key, device, stream_of(device))
    found = CONSTANTS.recall(whole)
    if found is not None:
        return found
    with torch.inference_mode(False):  # autograd may save them later
        found = make()
    large = any(tensor.numel() > _MOST_ENTRIES for tensor in found)
    if not (large or trees_allocate()):
        return CONSTANTS.keep(whole, found)
    return found


def numbers_of(node: Node, values: tuple[Value, ...]) -> tuple[Hashable, ...] | None:
    """A formula and its numbers, as a key; None if tensors or a function decide it."""
    if not _DECIDED_ELSEWHERE.isdisjoint(node.ops()):
        return None
    used = [values[i] for i in sorted({p.index for p in node.params if isinstance(p, Slot)})]
    if any(isinstance(value, torch.Tensor) for value in used):
        return None
    return (node.skeleton, *map(repr, used))  # 1 and 1.0 are equal, and so are 0.0 and -0.0


def of_mask(make: Callable[[Bound, Extents], Found]) -> Callable[[Bound, Extents], Found]:
    """The result of `make` for a mask and lengths, made once while the mask's tensors live.

    The layers of a model, and both passes, share it. A function that is no formula may read more
    than the mask's tensors: then nothing is remembered.
    """
    known = Memory(256)

    def recall(form: Bound, extents: Extents) -> Found:
        mask = form.structure.mask
        if "opaque" in mask.ops():
            return make(form, extents)
        return known.recall((extents,), (mask,), form.values, lambda: make(form, extents))

    return recall


def memorable(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether results from tensors can be remembered: writes to the tensors are counted, and no
    graph reads them anew."""
    if torch.compiler.is_compiling() or any(tensor.is_inference() for tensor in tensors):
        return False
    return not any(captured(tensor.device) for tensor in tensors)


def state_of(tensor: torch.Tensor) -> tuple[int, int, torch.Size]:
    """A state that changes when a tensor is written to, or given other memory.

    `tensor.data = other` gives it other memory, which PyTorch does not count as a write.
    """
    # A fake tensor has no memory of its own, and one of a transform raises an error.
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    try:
        place = tensor.data_ptr() if plain else 0
    except RuntimeError:
        place = 0
    return tensor._version, place, tensor.shape


def kinds_of(tensors: Iterable[torch.Tensor]) -> list[Hashable]:
    """All facts about each tensor but its address and entries; of an address, its rest modulo 16
    bytes."""
    found: list[Hashable] = []
    for t in tensors:  # a comprehension is a call in Python 3.11, and every call passes here
        place = t.data_ptr() % _ALIGNED
        found.append((type(t), t.shape, t.stride(), t.dtype, t.device, place))
    return found


def stream_of(device: torch.device) -> int:
    """The current stream: another stream would have to wait for results computed on it."""
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0


def captured(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured on a device, to be replayed on other entries."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
