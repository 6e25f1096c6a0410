"""How many documents a tensor of ids was made of, where the package made it of lengths."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

import torch
from torch.utils.weak import WeakIdKeyDictionary

_DOCUMENTS: Final[MutableMapping[torch.Tensor, int]] = WeakIdKeyDictionary()


def note_documents(ids: torch.Tensor, count: int) -> None:
    """Remember how many documents `ids` were made of, as long as the tensor lives."""
    _DOCUMENTS[ids] = count


def documents_in(ids: torch.Tensor) -> int | None:
    """How many documents ids were made of here; None for others, which would have to be read."""
    return _DOCUMENTS.get(ids)
