"""Positions of packed documents, written as places in the row where that changes nothing.

Since 5.24, transformers gives its mask functions the positions of queries and keys in their own
documents, and keeps documents apart with another function beside. A document is a run of positions
that count up by one, so within it positions differ as places in the row do. Causal and sliding
masks read this difference only. Of places they are proved as the masks of any row are; of positions
each tile inside a document would be evaluated.

It knows functions of `transformers.masking_utils` by their code. Where one of them is not there, as
before 5.24, masks are of positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from transformers import masking_utils


class _Known(NamedTuple):
    """Codes of transformers' mask functions.

    Attributes:
        compose: functions that join masks, by the code of what they return.
        both: of an intersection.
        documents: of packed documents.
        remapped: of a mask whose indices are mapped to positions.
        of_differences: of masks that read only the difference of query and key.
        remap: maps the indices of a mask to positions.
    """

    compose: dict[Any, Callable[..., Any]]
    both: Any
    documents: Any
    remapped: Any
    of_differences: tuple[Any, ...]
    remap: Callable[..., Any]


@cache
def _known() -> _Known | None:
    hf: Any = masking_utils
    none = torch.empty(0)
    try:
        return _Known(
            {_code(each()): each for each in (hf.and_masks, hf.or_masks)},
            _code(hf.and_masks()),
            _code(hf.packed_sequence_mask_function(none)),
            _code(hf.remap_positions_for_packed_sequence(hf.causal_mask_function, none)),
            (
                _code(hf.causal_mask_function),
                _code(hf.bidirectional_mask_function),
                _code(hf.sliding_window_overlay(1)),
                _code(hf.sliding_window_bidirectional_overlay(1)),
            ),
            hf.remap_positions_for_packed_sequence,
        )
    except (AttributeError, TypeError):
        return None


def by_place(function: Any) -> Any:
    """The mask function, whose parts that read differences of positions read places instead.

    Args:
        function: as transformers composes it. It is returned as it is, unless it is an
            intersection with packed documents.
    """
    known = _known()
    if known is None or _code(function) is not known.both:
        return function
    parts = _captured(function)["mask_functions"]
    if not any(_code(part) is known.documents for part in parts):
        return function
    return _within(function, known)


def _within(function: Any, known: _Known, positions: torch.Tensor | None = None) -> Any:
    """The same inside documents; its indices are mapped to `positions` where they are given."""
    code = _code(function)
    if code in known.compose:
        parts = _captured(function)["mask_functions"]
        return known.compose[code](*[_within(part, known, positions) for part in parts])
    if positions is None:
        if code is not known.remapped:
            return function
        captured = _captured(function)
        return _within(captured["mask_function"], known, captured["position_ids"])
    return function if code in known.of_differences else known.remap(function, positions)


def _code(function: Any) -> Any:
    return function.__code__ if isinstance(function, FunctionType) else None


def _captured(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}
