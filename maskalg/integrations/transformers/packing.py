"""Documents packed into one row, as variable-length attention describes them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from ...errors import MaskValueError
from ...formula.entries import readable
from ...values.algebra import Mask
from ...values.masks import document
from ...values.masks.documents.document import packed_ids
from .. import messages

if TYPE_CHECKING:
    from .model_mask import ModelMask


def note_leaking_documents(mask: ModelMask, positions: object) -> None:
    """Warn where positions start again within a row and the mask keeps no documents apart.

    Transformers looks for packed documents only without a cache and without padding. Positions on
    a GPU are not looked at.
    """
    q_len = mask.shape[2]
    if not isinstance(positions, torch.Tensor) or not readable(positions) or q_len < 2:
        return
    # A tensor over positions says where the documents or the padding of a row are.
    told = mask.score.parameters.values()
    if any(isinstance(value, torch.Tensor) and value.ndim for value in told):
        return
    if positions.ndim != 2 or positions.shape[1] != q_len:
        return
    if bool((positions.diff(dim=1) < 1).any()):
        warnings.warn(messages.documents_leak(), stacklevel=2)


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
        raise MaskValueError(
            f"cu_seq_lens_q describes documents packed into one row, got a batch of {batch}. Pass "
            "the documents as one row, or position_ids that start again at 0 without cu_seq_lens."
        )
    ids = packed_ids(*queries)
    if keys[0] is queries[0] and keys[1] == queries[1]:
        return document(ids, order="ascending")
    return document(ids, packed_ids(*keys), order="ascending")
