"""Documents packed into one row, as variable-length attention describes them."""

from __future__ import annotations

import torch

from ...values.algebra import Mask
from ...values.masks import document
from ...values.masks.documents.document import packed_ids
from .. import messages


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
        raise messages.packed_batch(batch)
    ids = packed_ids(*queries)
    if keys[0] is queries[0] and keys[1] == queries[1]:
        return document(ids, order="ascending")
    return document(ids, packed_ids(*keys), order="ascending")
