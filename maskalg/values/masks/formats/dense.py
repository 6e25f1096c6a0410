"""The escape hatch: a Boolean tensor."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from .... import errors
from ....formula.entries import Entries, as_tensor, kind_of, of_rank
from ....formula.nodes import SCORE
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at_pair
from ...by_hand import BATCH_SIZE, HEADS, Bools, MaskRows, looked_up, padded, places, row

__all__ = ["dense"]


def dense(tensor: Entries) -> Mask:
    """A Boolean tensor, True where kept: `[q, k]`, `[heads, q, k]` or `[batch, heads, q, k]`.

    Dimensions of size 1 are broadcast. Blocks are labelled by reading every element; prefer a
    formula if there is one.
    """
    given = as_tensor(tensor)
    if not isinstance(given, torch.Tensor) or given.dtype != torch.bool:
        raise errors.MaskTypeError(
            f"{errors.tensor_dtype('dense', 'tensor', kind_of(tensor), 'a bool tensor')} "
            f"{errors.FROM_MASK}"
        )
    wanted = "[q, k], [heads, q, k] or [batch, heads, q, k]"
    tensor = of_rank("dense", "tensor", given, (2, 3, 4), wanted)
    table = Table("dense", tensor)
    return Mask(at_pair(table), SCORE, called("dense", table))


# The second definition, and the rows of the catalogue.


def dense_by_hand(array: ArrayLike, **at: int) -> Bools:
    """`array[b, h, q, k]`; missing leading axes are added, an axis of size 1 is broadcast."""
    values = padded(array, 4).astype(np.bool_)
    # A single row or column serves every query or key.
    q, k = (at * (size > 1) for at, size in zip(places(**at), values.shape[2:], strict=True))
    return looked_up(values, q, k)


def rows() -> MaskRows:
    random = np.random.default_rng(20)
    kept = (random.random((BATCH_SIZE, HEADS, 8, 8)) < 0.5).repeat(8, -1).repeat(8, -2)
    return {
        "dense": row(dense, dense_by_hand, kept),
        "dense of keys": row(dense, dense_by_hand, kept[:, :, :1]),
    }
