"""Numbers of operations of the operators, for `torch.utils.flop_counter.FlopCounterMode`.

As for torch's own attention, all pairs count, also those that the mask drops; `mask.cost` counts
kept pairs. A counter copies torch's registry when it is made, and importing the registry imports
Triton. So the formulas are added to the registry, and to active counters, when a mode sees a call.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import torch

from ..formula.watched import modes
from .define import BACKWARD, FLOAT8_FORWARD, FORWARD, PAGES_FORWARD


def register() -> None:
    """Add the formulas to torch's registry, if it was imported, and to active counters."""
    registry = getattr(sys.modules.get("torch.utils.flop_counter"), "flop_registry", None)
    if registry is None:
        return
    registry.update(_FORMULAS)
    for mode in modes():
        counter: Any = getattr(mode, "counter", mode)
        getattr(counter, "flop_registry", {}).update(_FORMULAS)


def _forward(query: Any, key: Any, value: Any, *_: Any, **_named: Any) -> int:
    """Two products: q k^T and p v."""
    return _product(query, key.shape[2], key.shape[3] + value.shape[3])


def _float8(_descale: Any, *given: Any, **named: Any) -> int:
    return _forward(*given, **named)


def _pages(
    pages: Any, _most: Any, _descale: Any, query: Any, key: Any, value: Any, *_: Any, **_named: Any
) -> int:
    """As `_forward`, with all keys that a row of the table has room for."""
    return _product(query, pages[0].shape[1] * key.shape[1], key.shape[3] + value.shape[3])


def _backward(query: Any, key: Any, value: Any, *_: Any, **_named: Any) -> int:
    """Five products: the scores again, and the gradients of q, of k, of the weights and of v."""
    return _product(query, key.shape[2], 3 * key.shape[3] + 2 * value.shape[3])


def _product(query: Any, keys: int, dims: int) -> int:
    batch, heads, queries, _ = query.shape
    return 2 * int(batch * heads * queries * keys * dims)


_FORMULAS: Final = {
    getattr(torch.ops.maskalg, name.removeprefix("maskalg::")): formula
    for name, formula in (
        (FORWARD, _forward),
        (FLOAT8_FORWARD, _float8),
        (PAGES_FORWARD, _pages),
        (BACKWARD, _backward),
    )
}

register()  # for compiled and exported graphs
