"""The tensors that a text may make: `document.from_lengths([10**9])` is short to write."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import MaskValueError
from ..formula.expression import Expression
from ..formula.parameters import Table
from ..values.index import Index
from .tensors import MOST_ENTRIES, too_many_entries

MOST_BYTES: Final = 2**31

_NUMBERS_ALONE: Final = frozenset(
    ("add", "sub", "rsub", "mul", "mod", "remainder", "floordiv", "floor_divide", "rfloordiv")
) | frozenset(("ge", "gt", "le", "lt", "eq", "ne", "clamp", "and", "or", "xor", "getitem"))
"""Functions whose result is no longer for a larger number."""


class Budget(TorchFunctionMode):
    """Refuses a tensor of more than `MOST_ENTRIES` entries before torch makes it, and tensors of
    more than `MOST_BYTES` in all. A tensor from a file may be larger, and so may tensors made from
    it."""

    def __init__(self) -> None:
        super().__init__()
        self._most_entries, self._most_bytes = MOST_ENTRIES, MOST_BYTES
        self._kept: dict[int, int] = {}

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if name != "get" and _at_most(name, tree_leaves((args, named))) > self._most_entries:
            entries = _entries(function, name, args, named)
            if entries > self._most_entries:
                raise too_many_entries("a tensor", entries, self._most_entries)
        return function(*args, **named)

    def loaded(self, tensor: torch.Tensor) -> None:
        """Allow for a tensor from a file, and for the tensors that a mask makes from it."""
        self._most_entries = max(self._most_entries, 2 * tensor.numel())
        self._most_bytes += 4 * tensor.nbytes

    def keep(self, found: object) -> None:
        """Count the tensors of a value, once each; raises if all together take too much memory."""
        for tensor in _tensors_of(found):
            storage = tensor.untyped_storage()
            self._kept[storage.data_ptr()] = storage.nbytes()
        kept = sum(self._kept.values())
        if kept > self._most_bytes:
            raise MaskValueError(
                f"tensors of {kept / 2**30:.1f} GiB, and at most {self._most_bytes / 2**30:.0f} "
                "GiB are made for a text. Save them to a file and write load('file.npy'), or write "
                "the mask in code and name it as file.py:name."
            )


def _at_most(name: str, given: list[Any]) -> int:
    """How many entries a result may have, as far as is seen at once."""
    shapes = [part.shape for part in given if isinstance(part, torch.Tensor)]
    numbers = [abs(int(n)) + 1 for n in given if type(n) in (int, float) and abs(n) < 2**63]
    try:
        # That of torch would load its machinery of symbolic shapes.
        entries = prod(np.broadcast_shapes(*shapes))
    except ValueError:
        entries = prod(shape.numel() for shape in shapes)
    if name == "arange":
        return sum(numbers)
    return entries * (1 if shapes and name in _NUMBERS_ALONE else prod(numbers))


def _entries(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> int:
    """How many entries the results of a function have; 0 if that depends on entries.

    Such results, as of `nonzero`, are no longer than the arguments, except for two functions.
    """
    if name == "repeat_interleave" and isinstance(args[-1], torch.Tensor):
        return int(args[-1].sum())
    if name == "bincount":
        return int(args[0].max()) + 1
    try:
        given, options = tree_map(_without_entries, (args, named))
        if not any(isinstance(part, torch.Tensor) for part in tree_leaves(given)):
            options["device"] = "meta"
        found = tree_leaves(function(*given, **options))
    except Exception:  # of entries, or wrong: `function` says so itself
        return 0
    made = [part for part in found if isinstance(part, torch.Tensor) and not part._is_view()]
    return max([part.numel() for part in made], default=0)


def _without_entries(part: Any) -> Any:
    return torch.empty_like(part, device="meta") if isinstance(part, torch.Tensor) else part


def _tensors_of(found: object) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    nodes = [found.node] if isinstance(found, Index) else []
    if isinstance(found, Expression):
        nodes = [found.mask_node, found.bias_node]
    return [p.tensor for node in nodes for p in node.params if isinstance(p, Table)]
