"""A number that changes as a constant is told of; one that is a parameter is not."""

import warnings

import pytest
import torch

import maskalg as ma
from maskalg import causal, kv_idx, q_idx
from maskalg.codegen.hooks import Style
from maskalg.codegen.store import MANY
from maskalg.engine.normal_form import bound

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.plan import Inputs, Told, structure_plan


def plan(expression):
    structure = bound(expression).structure
    structure_plan(structure, Told(Style()), Inputs(64, 64, torch.bfloat16, "sm_90"))


def test_constants_that_change():
    for n in range(1, MANY):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan(causal & (q_idx - 3 * kv_idx < 1000 + n))
            plan(causal & (q_idx - 3 * kv_idx < 1000 + n) + ma.alibi(torch.ones(2)))
    with pytest.warns(ma.RecompilationWarning, match=r"16 values .* 1016.*ma\.scalar\(value\)"):
        plan(causal & (q_idx - 3 * kv_idx < 1000 + MANY))
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        plan(causal & (q_idx - 3 * kv_idx < 2000))


def test_parameters_and_captured_numbers_that_change():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 2 * MANY):
            plan(causal & ma.sliding(n) & ma.dilated(n) + ma.softcap(n))
            plan(causal & (q_idx - kv_idx < ma.scalar(n)))
            plan(ma.mask(lambda b, h, q, k: (q >= k) & (q - k < n)))  # noqa: B023


def test_other_formulas_are_told_apart():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, MANY):
            plan(causal & (q_idx - 5 * kv_idx < 300 + n))
            plan(causal & (q_idx + 5 * kv_idx < 300 + n))
