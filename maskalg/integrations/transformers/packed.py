"""Positions of packed documents, written as places in the row where that changes nothing.

Since 5.24, transformers gives its mask functions the positions of queries and keys in their own
documents, and keeps documents apart with another function beside. A document is a run of positions
that count up by one, so within it positions differ as places in the row do. Causal and sliding
masks read this difference only. Of places they are proved as the masks of any row are; of positions
each tile inside a document would be evaluated.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

import torch
from transformers import masking_utils

_hf: Final[Any] = masking_utils
_COMPOSE: Final = {each().__code__: each for each in (_hf.and_masks, _hf.or_masks)}
_AND: Final = _hf.and_masks().__code__
_DOCUMENTS: Final = _hf.packed_sequence_mask_function(torch.empty(0)).__code__
# Not before 5.24, which gives mask functions places in the row.
_remap: Final[Any] = getattr(_hf, "remap_positions_for_packed_sequence", None)
_REMAPPED: Final = _remap and _remap(_hf.causal_mask_function, torch.empty(0)).__code__
_OF_DIFFERENCES: Final = (
    _hf.causal_mask_function.__code__,
    _hf.bidirectional_mask_function.__code__,
    _hf.sliding_window_overlay(1).__code__,
    _hf.sliding_window_bidirectional_overlay(1).__code__,
)


def by_place(function: Any) -> Any:
    """The mask function, whose parts that read differences of positions read places instead.

    Args:
        function: as transformers composes it. It is returned as it is, unless it is an
            intersection with packed documents.
    """
    if _REMAPPED is None or _code(function) is not _AND:
        return function
    parts = _captured(function)["mask_functions"]
    if not any(_code(part) is _DOCUMENTS for part in parts):
        return function
    return _within(function)


def _within(function: Any, positions: torch.Tensor | None = None) -> Any:
    """The same inside documents; its indices are mapped to `positions` where they are given."""
    code = _code(function)
    if code in _COMPOSE:
        parts = _captured(function)["mask_functions"]
        return _COMPOSE[code](*[_within(part, positions) for part in parts])
    if positions is None:
        if code is not _REMAPPED:
            return function
        captured = _captured(function)
        return _within(captured["mask_function"], captured["position_ids"])
    return function if code in _OF_DIFFERENCES else _remap(function, positions)


def _code(function: Any) -> Any:
    return function.__code__ if isinstance(function, FunctionType) else None


def _captured(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}
