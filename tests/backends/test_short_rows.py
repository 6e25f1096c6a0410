"""Rows of few keys are computed by the tiles of windows."""

import pytest
import torch

import maskalg as ma
from maskalg import causal
from maskalg.codegen.hooks import Style
from maskalg.engine.normal_form import bound
from maskalg.tiles.forward import hopper_tile_for, tiles_for


def chosen(expression, dim, short):
    from maskalg.backends.triton.plan import Inputs, Told, structure_plan

    structure, style = bound(expression).structure, Style(ptx=True)
    plan = structure_plan(structure, Told(style, short), Inputs(dim, dim, torch.bfloat16, "sm_90"))
    return plan.hopper, plan.candidates


@pytest.fixture(autouse=True)
def gluon(monkeypatch):
    from maskalg.backends.triton import plan

    monkeypatch.setattr(plan, "has_gluon", lambda: True)


@pytest.mark.parametrize("dim", [64, 128])
def test_masks_that_keep_long_rows(dim):
    of_windows = (
        hopper_tile_for("sm_90", dim, 2, "banded", biased=False),
        tiles_for("sm_90", dim, 2, "banded"),
    )
    for expression in (ma.everything, causal, causal | ma.prefix(3)):
        assert chosen(expression, dim, True) == of_windows
        assert chosen(expression, dim, False) != of_windows


def test_what_was_not_measured_stays():
    ids = torch.zeros(8, dtype=torch.int32)
    for expression in (causal + ma.alibi(torch.ones(2)), causal & ma.document(ids)):
        assert chosen(expression, 64, True) == chosen(expression, 64, False)
