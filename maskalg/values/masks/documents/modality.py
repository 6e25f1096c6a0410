"""Kinds of tokens, and which of them sees which."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .... import errors
from ....formula import nodes
from ....formula.entries import Entries, booleans
from ....formula.nodes import SCORE, K, Q
from ....formula.parameters import Table
from ....formula.printing import called
from ...algebra import Mask
from ...arguments import at, entries_within, positions
from ...by_hand import ENTRIES, Bools, MaskRows, entry, padded, pairs, row

__all__ = ["modality"]


def modality(types: Entries, allowed: Entries) -> Mask:
    """allowed[types[q], types[k]]: which kind of token sees which.

    Args:
        types: integer tensor `[length]` or `[batch, length]`: the kind of each position.
        allowed: Boolean tensor `[kinds, kinds]`, queries by keys.

    Raises:
        ValueError: on the CPU, types outside of `allowed`. On a GPU and in compiled functions types
            are not checked, and such a type counts as the nearest kind.

    Source: mixtures of modalities, such as Chameleon and Mixture-of-Transformers.
    """
    kinds = positions("modality", "types", types)
    allowed = booleans("modality", "allowed", allowed)
    if allowed.ndim != 2 or allowed.shape[0] != allowed.shape[1]:
        raise errors.tensor_shape("modality", "allowed", list(allowed.shape), "[kinds, kinds]")
    entries_within("modality", "types", kinds.tensor, 0, len(allowed))
    table = Table("allowed", allowed)
    node = nodes.read(table, at(kinds, Q), at(kinds, K))
    return Mask(node, SCORE, called("modality", kinds, table))


# The second definition, and the rows of the catalogue.


def modality_by_hand(types: ArrayLike, allowed: ArrayLike, **at: int) -> Bools:
    """`allowed[types[q], types[k]]`."""
    rows, table = padded(types, 2), np.asarray(allowed)
    return pairs(
        lambda b, h, q, k: table[int(entry(rows, b, q)), int(entry(rows, b, k))], len(rows), **at
    )


def rows() -> MaskRows:
    kinds = np.random.default_rng(21).integers(0, 3, ENTRIES)
    allowed = np.array([[True, False, False], [True, True, False], [True, False, True]])
    return {"modality": row(modality, modality_by_hand, kinds, allowed)}
