"""Kept elements are counted without a look at them, and as brute force counts them."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import cast

import pytest
import torch

import maskalg as ma
from maskalg import causal, dilated, document, kv_idx, q_idx, sliding, table
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import bound
from maskalg.questions.cost import kept_keys, kept_pairs
from maskalg.testing import describe
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import CATALOGUE
from maskalg.values.algebra import Mask

FIELD = Path(__file__).parent.parent.parent / "benchmarks" / "exactness_masks.py"
MASKS: dict[str, Mask] = runpy.run_path(str(FIELD))["masks"]()
LENGTHS = ((1, 1), (63, 63), (1000, 1000), (1000, 777), (1, 1000))

# Neither intervals nor clauses tell: products of positions, tensors over pairs.
EVALUATED = {"products"}
EVALUATED_CATALOGUE = {
    "dense",
    "dense of keys",
    "causal below a dense mask",
}


def check(mask: Mask, lengths: tuple[int, int], batch: int, heads: int) -> None:
    form = bound(mask)
    extents = resolve(form, Lengths(*lengths, batch, heads))
    dense = mask.to_dense(*lengths, batch=batch, heads=heads)
    case = f"{describe(mask)}\n{lengths}"
    assert kept_pairs(form, extents) == int(dense.sum()), case
    keys = kept_keys(form, extents)
    assert keys is not None
    assert torch.equal(*torch.broadcast_tensors(keys, dense.sum(dim=-1))), case


def no_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "maskalg.questions.cost._by_elements", lambda *_: pytest.fail("an element is evaluated")
    )


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_the_field(name: str) -> None:
    for lengths in LENGTHS:
        check(MASKS[name], lengths, 1, 2)


@pytest.mark.parametrize("name", [name for name in MASKS if name not in EVALUATED])
def test_no_element_of_the_field_is_evaluated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_elements(monkeypatch)
    form = bound(MASKS[name])
    kept_pairs(form, resolve(form, Lengths(63, 63, 1, 2)))


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in EVALUATED_CATALOGUE])
def test_no_element_of_the_catalogue_is_evaluated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_elements(monkeypatch)
    mask = CATALOGUE[name].mask
    form = bound(mask)
    extents = resolve(form, Lengths(37, 23, BATCH, HEADS))
    dense = mask.to_dense(37, 23, batch=BATCH, heads=HEADS)
    assert kept_pairs(form, extents) == int(dense.sum()), describe(mask)


@pytest.mark.parametrize("seed", range(12))
def test_compositions_of_the_field(seed: int) -> None:
    choose = random.Random(seed)
    one, two, three = (MASKS[name] for name in choose.sample(sorted(MASKS), 3))
    for mask in (one & two, one | ~two, one & (two | three)):
        check(cast(Mask, mask), choose.choice(LENGTHS), 1, 2)


def test_a_million_tokens_are_counted_without_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    no_elements(monkeypatch)
    length = 1 << 20
    whole, rest = divmod(length, 7)
    assert (causal & dilated(7)).cost(length).kept == 7 * whole * (whole + 1) // 2 + rest * (
        whole + 1
    )
    ids = torch.arange(length) % 5
    sizes = torch.bincount(ids)
    found = document(ids).cost(length)
    assert found.kept == int((sizes * sizes).sum())
    assert not found.labelled and "not all of them labelled" in str(found)
    grid = ma.neighborhood((1024, 1024), 13, 4).cost(length)
    assert grid.kept == 169 * length and grid.labelled


def test_overlapping_clauses_count_once() -> None:
    flags = table(torch.arange(50) % 3 == 0, "flags")
    mask = flags[q_idx] | flags[kv_idx] | (kv_idx <= q_idx) | sliding(9)
    for lengths in ((50, 50), (50, 7), (1, 50)):
        check(mask, lengths, 1, 1)
