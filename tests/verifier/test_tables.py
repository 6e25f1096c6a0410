"""Runs of one call against its formula: those that the host looks up, and wrong ones."""

import pytest
import torch

import maskalg as ma
from maskalg.engine.normal_form import bound
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier.reading.triton import kernel_source
from maskalg.verifier.walk import tables
from maskalg.verifier.walk.tables import claims_of_call

IMAGE = bound(ma.neighborhood((14, 14), 5))
SOME = torch.eye(25).bool() | torch.eye(25).roll(3, 0).bool()
BLOCKS = bound(ma.causal & ma.block_table(SOME, 50))


STAIRS = bound(ma.block_table(torch.ones(35, 35).tril().flip(0).bool(), 64))


@pytest.mark.parametrize("name", CATALOGUE)
def test_runs_of_the_catalogue(name):
    found = list(claims_of_call(bound(CATALOGUE[name].mask)))
    assert len(found) >= 2
    assert [claim for claim in found if claim.outcome != "proved"] == []


def test_a_length_of_ones_own():
    found = list(claims_of_call(bound(ma.causal & ma.sliding(100)), 333))
    assert [claim.outcome for claim in found] == ["proved"] * 4
    assert "a call of 333 queries and 333 keys" in found[0].text
    (refused,) = claims_of_call(BLOCKS, 3333)
    assert refused.outcome == "not proved" and "has 25 entries" in refused.by


FORMS = ((IMAGE, 196), (BLOCKS, 1250), (STAIRS, 2200))
WRONG = [
    ("whole = some & (code % 2 == 0)", "whole = some & (code % 2 == 1)"),
    ("low = tl.minimum(code >> 1, columns)", "low = tl.minimum((code >> 1) + 1, columns)"),
    ("tl.minimum(end << grain_bits, kv_len)", "tl.minimum((end - 1) << grain_bits, kv_len)"),
    ("where(first == found, tl.minimum(full, whole)",
     "where(first == found, tl.maximum(full, whole)"),
    ("return tl.minimum(found, first), full", "return tl.maximum(found, first), full"),
    ("row = tl.minimum(row + 1, last)", "row = last + 1"),
    ("skipped = from_last * (", "skipped = 0 * ("),
    ("kv_len, BLOCK)\n    found, until", "kv_len, BLOCK)\n    first = first + 1\n    found, until"),
    ("return found, end, partial & masked", "return found, end, partial & ~masked"),
]  # fmt: skip


@pytest.mark.parametrize("old, new", WRONG)
def test_a_wrong_look_up_is_refused(old, new):
    text = kernel_source("runs")
    assert old in text
    sources = {"runs": text.replace(old, new)}
    found = (claim for call in FORMS for claim in claims_of_call(*call, sources=sources))
    assert any(claim.outcome == "wrong" for claim in found)


@pytest.mark.parametrize("call", FORMS)
def test_a_wrong_table_is_refused(call, monkeypatch):
    made = tables.marked_runs

    def one_full_run_too_many(*args):
        found = made(*args).clone()
        found[..., 0] = torch.where(found[..., 0] % 2 == 1, found[..., 0] - 1, found[..., 0])
        return found

    monkeypatch.setattr(tables, "marked_runs", one_full_run_too_many)
    wrong = [claim for claim in claims_of_call(*call) if claim.outcome == "wrong"]
    assert wrong and all("has a pair to drop and is not masked" in claim.by for claim in wrong)
