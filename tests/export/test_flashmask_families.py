"""FlashMask's own families of masks: exact counts of tiles, and their columns written and read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg.testing import oracle
from tests.cases.flashmask_families import FAMILIES, LENGTH, Family


def columns(family: Family, length: int) -> np.ndarray:
    """`[keys, 1, 2 or 4]` as the format wants it."""
    parts = np.broadcast_arrays(np.zeros(length, np.int32), *family.columns(length))
    return np.stack(parts[1:], axis=-1).astype(np.int32)


def kept_by(found: np.ndarray, causal: bool) -> np.ndarray:
    """What the columns keep, from the definition of the format."""
    length, count = found.shape
    q, bounds = np.arange(length)[:, None], list(found.T)
    if causal or count == 4:
        lower = (q >= bounds[0]) & (q < (bounds[1] if count > 1 else length))
        upper = (q < np.arange(length)) if causal else (q >= bounds[2]) & (q < bounds[3])
    else:
        lower, upper = q >= bounds[0], q < bounds[1]
    return ~(lower | upper)


@pytest.mark.parametrize("name", FAMILIES)
def test_tiles_of_a_family(name: str) -> None:
    family = FAMILIES[name]
    found = family.mask(LENGTH).blocks(LENGTH)
    empty, partial, full = found.counts()
    assert (empty, full, partial) == family.counts
    assert found.evaluated == 0
    indices = torch.from_numpy(columns(family, LENGTH))[None, None]
    read = ma.flashmask(indices, causal=family.causal).blocks(LENGTH)
    assert read.evaluated == 0
    assert torch.equal(read.labels, found.labels)


@pytest.mark.parametrize("name", FAMILIES)
def test_columns_of_a_family(name: str) -> None:
    family, length = FAMILIES[name], 512
    mask = family.mask(length)
    want = kept_by(columns(family, length), family.causal)
    assert np.array_equal(mask.to_dense(length)[0, 0].numpy(), want)
    assert np.array_equal(
        mask.blocks(length, block=8).labels.numpy(), oracle.labels(want[None, None], 8, 8)
    )
    found, causal = ma.to_flashmask(mask, length)
    assert np.array_equal(kept_by(found[0, 0].numpy(), causal), want)
    # Never a longer form than FlashMask's own.
    assert found.shape[3] <= columns(family, length).shape[1] and causal == family.causal
