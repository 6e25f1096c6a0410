"""The escape hatch: a Boolean tensor."""

from __future__ import annotations

import torch

from ... import errors
from ...formula import nodes
from ...formula.entries import Entries, as_tensor, kind_of
from ...formula.nodes import BATCH, HEAD, SCORE, K, Q
from ...formula.parameters import Table
from ...formula.printing import called
from ..algebra import Mask


def dense(tensor: Entries) -> Mask:
    """A Boolean tensor, True where kept: `[q, k]`, `[heads, q, k]` or `[batch, heads, q, k]`.

    Dimensions of size 1 are broadcast. Blocks are found by looking at every element; prefer a
    formula where there is one.
    """
    given = as_tensor(tensor)
    if not isinstance(given, torch.Tensor) or given.dtype != torch.bool:
        raise errors.dense_dtype(kind_of(tensor))
    tensor = given
    if tensor.ndim not in (2, 3, 4):
        raise errors.tensor_shape(
            "dense", "tensor", list(tensor.shape), "[q, k], [heads, q, k] or [batch, heads, q, k]"
        )
    indices = [BATCH, HEAD, Q, K][-tensor.ndim :]
    table = Table("dense", tensor)
    # A single row or column serves every query or key; batch and head broadcast when read.
    for axis in (-2, -1):
        if tensor.shape[axis] == 1:
            indices[axis] = nodes.const(0)
    return Mask(nodes.read(table, *indices), SCORE, called("dense", table))
