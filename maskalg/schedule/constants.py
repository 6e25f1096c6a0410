"""What lengths and numbers alone decide, remembered for a device and a stream.

Labels of tiles from summaries are made anew for every new tensor, in each step of a training or by
each layer of a model that routes; most of what they are made of is the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

import torch

from ..engine.normal_form import Value
from ..engine.recent import Recent
from ..formula.node import Node
from ..formula.parameters import Slot
from .positions.sets import stream_of

Tensors = tuple[torch.Tensor, ...]

_DECIDED_ELSEWHERE: Final = frozenset(("opaque", "member", "step"))  # by functions and tensors
_MOST_ENTRIES: Final = 1 << 18  # of a tensor that is remembered
_KNOWN: Final[Recent[Any, Tensors]] = Recent(256)


def constant(
    key: tuple[Hashable, ...], device: torch.device, make: Callable[[], Tensors]
) -> Tensors:
    """The tensors that `make` gives for this key, which says all that they depend on."""
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    watched = torch._C._len_torch_dispatch_stack() > 0 or torch.compiler.is_compiling()
    if capturing or watched:
        return make()  # the memory of a graph is its own, and so are tensors of other classes
    whole = (*key, device, stream_of(device))
    found = _KNOWN.recall(whole)
    if found is not None:
        return found
    with torch.inference_mode(False):  # autograd may save them later
        found = make()
    if all(tensor.numel() <= _MOST_ENTRIES for tensor in found):
        return _KNOWN.keep(whole, found)
    return found


def numbers_of(node: Node, values: tuple[Value, ...]) -> tuple[Hashable, ...] | None:
    """A formula with its numbers, as a key; None where tensors or a function decide it."""
    if not _DECIDED_ELSEWHERE.isdisjoint(node.ops()):
        return None
    bound = [values[i] for i in sorted({p.index for p in node.params if isinstance(p, Slot)})]
    if any(isinstance(value, torch.Tensor) for value in bound):
        return None
    return (node.skeleton, *map(repr, bound))  # 1 and 1.0 are equal, and so are 0.0 and -0.0
