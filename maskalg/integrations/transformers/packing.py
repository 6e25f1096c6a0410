"""Documents packed into one row, as variable-length attention describes them."""

from __future__ import annotations

import torch

from ... import errors
from ...algebra import Mask
from ...masks import document


def within_documents(
    batch: int, queries: tuple[torch.Tensor, int], keys: tuple[torch.Tensor, int]
) -> Mask:
    """Queries see keys of their own document; nothing is read from the device.

    Args:
        batch: rows of the batch; one, because the documents are packed into it.
        queries: cumulative lengths `[documents + 1]`, and how many queries there are.
        keys: the same for keys.
    """
    if batch != 1:
        raise errors.packed_batch(batch)
    return document(_ids(*queries), _ids(*keys))


def _ids(cumulative: torch.Tensor, length: int) -> torch.Tensor:
    places = torch.arange(length, device=cumulative.device, dtype=cumulative.dtype)
    return torch.searchsorted(cumulative, places, right=True).to(torch.int32)
